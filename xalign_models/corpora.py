"""Text by language: the corpora that alignments are fitted on and tasks are made of.

A corpus is read from ``$XALIGN_DATA`` in its publisher's own layout where it is there, else from the Hugging Face hub
where it is published there, else from the package assets. Every corpus gives one of two things:

- ``texts(language)``: a list of sentences; in a *parallel* corpus row i means the same in every language;
- ``pair(language)``: (sentences, their English translations), row by row, each language with its own English side.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Any

from xalign_models.errors import DataError, LanguageError
from xalign_models.languages import canonical, from_flores, from_iso639_1, from_ntrex, from_tatoeba
from xalign_models.paths import data_dir

ENGLISH = "eng-Latn"


def read_lines(path: Path) -> list[str]:
    r"""The lines of a UTF-8 file without their ends; a final empty line is none; \r, U+2028 and \x85 end no line.

    Raises:
        DataError: The file is not UTF-8.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")  # as bytes: a carriage return alone ends no line either
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 (byte {error.start}); convert it, e.g. with iconv.") from None
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


@dataclass(frozen=True)
class Corpus:
    """Text by language.

    Attributes:
        name: What users call it, e.g. ``ntrex``.
        kind: ``monolingual``, ``parallel`` or ``pairs``.
        trains: Names of the mteb data sets and tasks that hold this text: the ``training_datasets`` of what is fitted
            on it.
        languages: Canonical codes of the languages it has, sorted.
        rows: Reads a language: a list of texts, or (texts, English texts) for pairs.
        identity: A language's digest: changes when its rows may have changed.
    """

    name: str
    kind: str
    trains: tuple[str, ...]
    languages: tuple[str, ...]
    rows: Callable[[str], Any]
    identity: Callable[[str], str]

    def _read(self, language: str) -> Any:
        if language not in self.languages:
            raise LanguageError(f"Corpus {self.name!r} has no {language}; it has {', '.join(self.languages)}.")
        return self.rows(language)

    def texts(self, language: str) -> list[str]:
        """The sentences of a language, in file order.

        Raises:
            LanguageError: The corpus does not have the language.
            DataError: The file cannot be read.
        """
        rows = self._read(language)
        return list(rows[0]) if self.kind == "pairs" else list(rows)

    def pair(self, language: str) -> tuple[list[str], list[str]]:
        """The sentences of a language and their English translations, row by row.

        Raises:
            LanguageError: The corpus does not have the language.
            DataError: It has no translations, or the two sides differ in length.
        """
        if self.kind == "monolingual":
            raise DataError(
                f"Corpus {self.name!r} has no translations; parallel ones are ntrex, flores, tatoeba_pairs."
            )
        if self.kind == "parallel":
            side, english = self.texts(language), self.texts(ENGLISH)
        else:
            side, english = self._read(language)
        if len(side) != len(english):
            raise DataError(
                f"{self.name}: {language} has {len(side)} rows and English {len(english)}; they must align."
            )
        return list(side), list(english)

    def parallel(self, languages: Iterable[str]) -> dict[str, list[str]]:
        """Rows that mean the same in every one of ``languages``.

        Raises:
            DataError: Not a parallel corpus, or the row counts differ; the message names them.
        """
        if self.kind != "parallel":
            raise DataError(f"Corpus {self.name!r} is not parallel across languages.")
        columns = {language: self.texts(language) for language in languages}
        counts = {language: len(rows) for language, rows in columns.items()}
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{language} {count}" for language, count in counts.items())
            raise DataError(f"Rows of {self.name!r} are not aligned: {listed}. Every language needs the same rows.")
        return columns

    def fingerprint(self, languages: Iterable[str] | None = None) -> str:
        """Sha256 (hex) over the name and what determines the rows of ``languages`` (all by default)."""
        chosen = sorted(self.languages if languages is None else set(languages) & set(self.languages))
        parts = [self.name, *(f"{language}={self.identity(language)}" for language in chosen)]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _from_files(
    name: str,
    kind: str,
    trains: tuple[str, ...],
    files: Mapping[str, tuple[Path, ...]],
    read: Callable[[tuple[Path, ...]], Any],
) -> Corpus:
    """A corpus whose languages lie in files of their own."""

    def identity(language: str) -> str:
        return " ".join(file_digest(path) for path in files[language])

    return Corpus(name, kind, trains, tuple(sorted(files)), lambda language: read(files[language]), identity)


def _from_columns(name: str, trains: tuple[str, ...], columns: Mapping[str, list[str]], identity: str) -> Corpus:
    """A parallel corpus whose languages are columns of one table."""
    languages = tuple(sorted(columns))
    return Corpus(name, "parallel", trains, languages, lambda language: columns[language], lambda _: identity)


def file_digest(path: Path) -> str:
    """Sha256 (hex) of a file's content, computed once for a (path, size, modification time)."""
    status = path.stat()
    return _file_digest(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=4096)
def _file_digest(path: Path, size: int, mtime_ns: int) -> str:
    with path.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _lines(files: tuple[Path, ...]) -> list[str]:
    return [line for file in files for line in read_lines(file)]


def _sentences(files: tuple[Path, ...]) -> list[str]:
    return [line for line in _lines(files) if line.strip()]


def _two_files(files: tuple[Path, ...]) -> tuple[list[str], list[str]]:
    return read_lines(files[0]), read_lines(files[1])


def _tsv_pairs(files: tuple[Path, ...]) -> tuple[list[str], list[str]]:
    rows = [line.split("\t") for line in read_lines(files[0])]
    if bad := next((number for number, row in enumerate(rows, 1) if len(row) < 2), 0):
        raise DataError(f"{files[0]}, line {bad}: expected two columns separated by a tab (English, translation).")
    return [row[1] for row in rows], [row[0] for row in rows]


def _flores(root: Path) -> dict[str, tuple[Path, ...]]:
    return {from_flores(path.stem): (path,) for path in sorted((root / "devtest").glob("*.devtest"))}


def _ntrex(root: Path) -> dict[str, tuple[Path, ...]]:
    found: dict[str, tuple[Path, ...]] = {}
    for path in sorted(
        (root / "NTREX-128").glob("newstest2019-ref.*.txt"), key=lambda path: (len(path.name), path.name)
    ):
        found.setdefault(from_ntrex(path.name.split(".")[1]), (path,))  # the plain code comes before its regions
    source = root / "NTREX-128" / "newstest2019-src.eng.txt"
    return found | ({ENGLISH: (source,)} if source.is_file() else {})


def _tatoeba(root: Path) -> dict[str, tuple[Path, ...]]:
    pairs = {path.name.split(".")[1].split("-")[0]: path for path in sorted((root / "v1").glob("tatoeba.*-eng.eng"))}
    preferred = sorted(
        pairs, key=lambda code: canonical(code).split("-")[0] != code
    )  # zsm before a macrolanguage's file
    found: dict[str, tuple[Path, ...]] = {}
    for code in preferred:
        found.setdefault(from_tatoeba(code), (pairs[code].with_suffix(f".{code}"), pairs[code]))
    return found


def _tatoeba_pairs(root: Path) -> dict[str, tuple[Path, ...]]:
    return {from_tatoeba(path.stem.split("-")[1]): (path,) for path in sorted(root.glob("eng-*.tsv"))}


def _by_iso639_1(root: Path) -> dict[str, tuple[Path, ...]]:
    return {from_iso639_1(path.stem): (path,) for path in sorted((root / "sentences").glob("*.txt"))}


def _newstest(root: Path) -> dict[str, tuple[Path, ...]]:
    found: dict[str, list[Path]] = {}
    for path in sorted(path for path in root.rglob("news*.*") if len(path.suffix) == 3):
        found.setdefault(from_iso639_1(path.suffix[1:]), []).append(path)
    return {language: tuple(paths) for language, paths in found.items()}


@dataclass(frozen=True)
class _Publisher:
    folder: str
    where: str
    kind: str
    trains: tuple[str, ...]
    layout: Callable[[Path], dict[str, tuple[Path, ...]]]
    reader: Callable[[tuple[Path, ...]], Any]
    hub: tuple[str, str, str] | None = None  # path, revision, split


_PUBLISHERS = {
    "flores": _Publisher("flores200_dataset", "FLORES-200 (github.com/facebookresearch/flores)", "parallel",
                         ("FloresBitextMining", "FloresPrecision"), _flores, _lines,
                         ("mteb/FloresBitextMining", "2144d16cc15edd22d4a9237d12bff5f31f5c07fc", "devtest")),
    "ntrex": _Publisher("ntrex", "NTREX-128 (github.com/MicrosoftTranslator/NTREX)", "parallel",
                        ("NTREXBitextMining", "NTREXPrecision"), _ntrex, _lines,
                        ("mteb/NTREXBitextMining", "66b8b27efc99658903127730575e9fa0cb9f075c", "test")),
    "tatoeba": _Publisher("tatoeba", "LASER's Tatoeba test set (github.com/facebookresearch/LASER, data/tatoeba)",
                          "pairs", ("Tatoeba", "Tatoeba36"), _tatoeba, _two_files,
                          ("mteb/tatoeba-bitext-mining", "69e8f12da6e31d59addadda9a9c8a2e601a0e282", "test")),
    "tatoeba_pairs": _Publisher("tatoeba_pairs", "Tatoeba sentence pairs (tatoeba.org, manythings.org/anki)", "pairs",
                                ("TatoebaPairs", "Orthogonality"), _tatoeba_pairs, _tsv_pairs),
    "lingua": _Publisher("lingua_sentences", "lingua-go's test sentences (github.com/pemistahl/lingua-go)",
                         "monolingual", ("LinguaSentences",), _by_iso639_1, _sentences),
    "newstest": _Publisher("wmt_newstest", "WMT news test sets (statmt.org/wmt20)", "monolingual", ("WMTNewstest",),
                           _newstest, _sentences),
}  # fmt: skip
GETTEXT_LANGUAGES = tuple(
    "arb-Arab deu-Latn eng-Latn fra-Latn ind-Latn ita-Latn jpn-Jpan por-Latn rus-Cyrl spa-Latn tur-Latn "
    "zho-Hans".split()
)
"""The languages of the embedded corpus; its rows are those that are translated into all of them."""
CORPORA = (*_PUBLISHERS, "gettext", "own")
"""Names that :func:`load` takes; ``own`` needs a path."""


def load(name: str, path: Path | None = None, *, local: bool = False) -> Corpus:
    """A corpus by name.

    Args:
        name: One of :data:`CORPORA`, e.g. ``ntrex``; ``gettext`` and ``gettext:fit`` / ``gettext:test`` are the
            embedded one and its two halves; ``own:DIR`` is short for ``own`` with a path.
        path: Where it lies; by default its folder under ``$XALIGN_DATA``.
        local: Do not ask the hub for it.

    Raises:
        DataError: Unknown name, or its files are not there; the message names the variable and the publisher.
    """
    name, _, part = name.partition(":")
    if name == "own":
        return own(Path(part) if part else _require_path(path))
    if name == "gettext":
        return gettext(part)
    if name not in _PUBLISHERS or part:
        raise DataError(f"Unknown corpus {f'{name}:{part}' if part else name!r}; known ones are {', '.join(CORPORA)}.")
    publisher = _PUBLISHERS[name]
    root = path or _local(publisher.folder)
    files = publisher.layout(root) if root is not None and root.is_dir() else {}
    if files:
        return _from_files(name, publisher.kind, publisher.trains, files, publisher.reader)
    missing = (
        f"Corpus {name!r} is missing: set XALIGN_DATA to a folder that has {publisher.folder}/ in the layout of "
        f"{publisher.where}"
    )
    if local or path is not None or publisher.hub is None:
        raise DataError(f"{missing}.")
    return _from_hub(name, publisher, missing)


def _from_hub(name: str, publisher: _Publisher, missing: str) -> Corpus:
    """The same corpus as mteb publishes it, at the revision that mteb pins."""
    import datasets

    path, revision, split = publisher.hub  # type: ignore[misc]  # checked by the caller
    try:
        if publisher.kind == "pairs":
            configs = datasets.get_dataset_config_names(path, revision=revision)
            configs = {from_tatoeba(config.split("-")[0]): config for config in configs if config.endswith("-eng")}

            def rows(language: str) -> tuple[list[str], list[str]]:
                table = datasets.load_dataset(path, configs[language], split=split, revision=revision)
                return list(table["sentence1"]), list(table["sentence2"])

            languages = tuple(sorted(configs))
            return Corpus(name, "pairs", publisher.trains, languages, rows, lambda _: f"{path}@{revision}")
        table = datasets.load_dataset(path, split=split, revision=revision)
    except (OSError, ValueError, datasets.exceptions.DatasetNotFoundError) as error:
        raise DataError(f"{missing}; the hub's {path} cannot be had either ({type(error).__name__}).") from None
    columns = {}
    for column in table.column_names:
        try:
            columns[canonical(column)] = list(table[column])
        except LanguageError:
            continue  # ids and the like
    return _from_columns(name, publisher.trains, columns, f"{path}@{revision}")


def _local(folder: str) -> Path | None:
    root = data_dir()
    return root / folder if root else None


def _require_path(path: Path | None) -> Path:
    if path is None:
        raise DataError("Corpus 'own' needs a directory or file: use --data own=DIR (or own:DIR for a fit corpus).")
    return path


def own(path: Path) -> Corpus:
    """A parallel corpus of the user's: a directory of one text file per language, or one table with a column each.

    A directory holds ``deu.txt``, ``deu_Latn.txt`` or ``de.txt`` (a line a sentence; rows align across files). A table
    is a ``.tsv`` with a header, a ``.jsonl`` or a ``.parquet`` whose columns are named by language codes.

    Raises:
        DataError: Nothing there, no column or file is named by a language, or two are the same language.
    """
    if path.is_dir():
        tables = sorted(file for file in path.iterdir() if file.suffix in {".tsv", ".jsonl", ".parquet"})
        named = {file: file.stem for file in sorted(path.glob("*.txt"))}
        if not named and len(tables) == 1:
            return own(tables[0])
        files = {_own_code(stem, file): (file,) for file, stem in named.items()}
        if len(files) < len(named):
            raise DataError(
                f"{path}: two of {', '.join(f.name for f in named)} are the same language; keep one of each."
            )
        if len(files) < 2:
            raise DataError(f"{path} needs at least two files named by language, such as deu.txt and eng.txt.")
        return _from_files("own", "parallel", ("OwnParallel",), files, _lines)
    if not path.is_file():
        raise DataError(
            f"{path} does not exist; give a directory of <language>.txt files or a .tsv/.jsonl/.parquet table."
        )
    columns = _table(path)
    codes = {_own_code(column, path): column for column in columns}
    if len(codes) < len(columns):
        raise DataError(f"{path}: two of the columns {', '.join(columns)} are the same language; keep one of each.")

    by_code = {code: columns[column] for code, column in codes.items()}
    return _from_columns("own", ("OwnParallel",), by_code, file_digest(path))


def _own_code(name: str, source: Path) -> str:
    try:
        return canonical(name)
    except LanguageError as error:
        raise DataError(f"{source}: {name!r} does not name a language ({error})") from None


def _table(path: Path) -> dict[str, list[str]]:
    rows: dict[str, list[Any]]
    if path.suffix == ".parquet":
        import pyarrow.parquet

        try:
            rows = pyarrow.parquet.read_table(path).to_pydict()
        except pyarrow.ArrowInvalid as error:
            raise DataError(f"{path} is not a readable parquet file ({error}).") from None
    elif path.suffix == ".jsonl":
        records = [
            _record(line, f"{path}, line {number}") for number, line in enumerate(read_lines(path), 1) if line.strip()
        ]
        rows = {key: [record.get(key) for record in records] for key in dict.fromkeys(chain(*records))}
    elif path.suffix == ".tsv":
        header, *body = [line.split("\t") for line in read_lines(path)] or [[]]
        if len(set(header)) < len(header):
            raise DataError(f"{path}: a column name comes twice among {', '.join(header)}; keep one of each.")
        if bad := next((number for number, row in enumerate(body, 2) if len(row) != len(header)), 0):
            raise DataError(f"{path}, line {bad}: expected {len(header)} tab-separated columns, as in the header.")
        rows = {key: [row[i] for row in body] for i, key in enumerate(header)}
    else:
        raise DataError(f"{path} is not a .tsv, .jsonl or .parquet table.")
    if not rows or not next(iter(rows.values())):
        raise DataError(f"{path} has no rows.")
    for key, values in rows.items():
        if bad := next((number for number, value in enumerate(values, 1) if not isinstance(value, str)), 0):
            raise DataError(f"{path}: row {bad} of column {key!r} is not text; every language needs every row.")
    return rows


def _record(line: str, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{where} is not JSON ({error}).") from None
    if not isinstance(record, dict):
        raise DataError(f"{where} is not a JSON object whose keys are languages.")
    return record


def gettext(part: str = "") -> Corpus:
    """The embedded corpus: Django's translated interface strings, one column per language, rows parallel.

    Args:
        part: "" for all rows; ``fit`` and ``test`` are disjoint halves, by the hash of the English string.

    Raises:
        DataError: Unknown part.
    """
    from xalign_models import assets

    if part not in {"", "fit", "test"}:
        raise DataError(f"Unknown part {part!r} of the gettext corpus; parts are fit and test.")
    path = assets.install("gettext") / "corpus.jsonl"
    records = [json.loads(line) for line in read_lines(path)]
    records = [record for record in records if record.keys() >= set(GETTEXT_LANGUAGES)]
    records = [record for record in records if not part or _half(record[ENGLISH]) == part]
    columns = {language: [record[language] for record in records] for language in GETTEXT_LANGUAGES}
    return _from_columns("gettext", ("GettextPrecision",), columns, f"{assets.fingerprint('gettext')} {part}")


def _half(text: str) -> str:
    return "fit" if hashlib.sha256(text.encode()).digest()[0] % 2 else "test"
