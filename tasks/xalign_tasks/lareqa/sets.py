"""The two sets of LAReQA: XQuAD-R and MLQA-R."""

from pathlib import Path

from xalign_models.corpora import Corpus
from xalign_models.errors import DataError
from xalign_models.languages import from_iso639_1, to_iso639_1
from xalign_models.paths import data_dir
from xalign_tasks.base import task_metadata
from xalign_tasks.lareqa.reader import Side, read_rows
from xalign_tasks.lareqa.task import HOME, LAReQA


def _counts(text: str) -> dict[str, tuple[int, int]]:
    rows = [line.split() for line in text.splitlines()]
    return {from_iso639_1(code): (int(questions), int(candidates)) for code, questions, candidates in rows}


def _json_files(folder: Path, codes: tuple[str, ...], pattern: str) -> dict[str, tuple[Path, ...]] | None:
    """The file of each language, or None if any is missing."""
    files: dict[str, tuple[Path, ...]] = {code: (folder / pattern.format(to_iso639_1(code)),) for code in codes}
    return files if all(path.is_file() for paths in files.values() for path in paths) else None


class XQuADR(LAReQA):
    """XQuAD-R: the 1,190 questions of XQuAD in eleven languages, answered in each."""

    expected = _counts(
        "ar 1190 1222\nde 1190 1276\nel 1190 1234\nen 1190 1180\nes 1190 1215\nhi 1190 1244\nru 1190 1219\n"
        "th 1190 852\ntr 1190 1167\nvi 1190 1209\nzh 1190 1196"
    )
    needs = tuple(expected)
    metadata = task_metadata("XQuAD-R", needs)

    def files(self) -> dict[str, tuple[Path, ...]]:
        """LAReQA's own files."""
        root = data_dir()
        paths = _json_files(root / "lareqa" / "xquad-r", self.needs, "{}.json") if root else None
        if paths is None:
            raise DataError(
                "XQuAD-R is missing: set XALIGN_DATA to a folder that has lareqa/xquad-r/ with a file for each of "
                f"{', '.join(str(to_iso639_1(code)) for code in self.needs)}, as in {HOME}."
            )
        return paths


class XQuADRAsPublished(XQuADR):
    """XQuAD-R as in the code behind LSAR's numbers: each sentence with its paragraph, dot products of raw vectors.

    That code fits LSAR on the eleven languages alone, like ``xalign fit lsar --languages ar,de,el,...``.
    """

    as_published = True
    metadata = task_metadata("XQuAD-R-as-published", XQuADR.needs)


class MLQAR(LAReQA):
    """MLQA-R: the questions of MLQA's development set, each in two to four of seven languages and answered in these.

    Read from LAReQA's own files if available (``lareqa/mlqa-r`` or ``mlqa-dev-r``), else built from MLQA's (``mlqa``)
    as LAReQA describes it. As LAReQA's sentence splitter is unpublished, ours replaces it, and only the number of
    questions is checked.
    """

    expected = _counts("ar 517 2545\nde 512 2362\nen 1148 6264\nes 500 1787\nhi 507 2426\nvi 511 2828\nzh 504 2322")
    needs = tuple(expected)
    metadata = task_metadata("MLQA-R", needs)

    def files(self) -> dict[str, tuple[Path, ...]]:
        """LAReQA's own files, or MLQA's."""
        root, pattern = data_dir(), "dev-context-{0}-question-{0}.json"
        for folder in ("lareqa/mlqa-r", "lareqa/mlqa-dev-r", "mlqa/dev", "mlqa/MLQA_V1/dev"):
            self.own_sentences = folder.startswith("mlqa/")
            form = pattern if self.own_sentences else "{}.json"
            if root and (paths := _json_files(root / folder, self.needs, form)):
                return paths
        raise DataError(
            f"MLQA-R is missing: set XALIGN_DATA to a folder that has lareqa/mlqa-dev-r/ as in {HOME}, or mlqa/dev/ as "
            "in MLQA_V1.zip of github.com/facebookresearch/MLQA."
        )

    def hub_corpus(self, missing: DataError) -> Corpus:
        """MLQA's development set on the hub."""
        self.own_sentences = True
        name, dataset = self.metadata.name, self.metadata.dataset

        def rows(language: str) -> Side:
            config = "MLQA.{0}.{0}".format(to_iso639_1(language))
            return read_rows(self.hub_rows(config, "validation", missing), f"{dataset['path']} {config}")

        return Corpus(name, "files", (name,), self.needs, rows, lambda _: str(dataset["revision"]))
