"""SIB-200: seven topics, the sentences of FLORES-200, 204 languages."""

from pathlib import Path
from typing import ClassVar

from xalign_models.corpora import read_lines
from xalign_models.errors import DataError
from xalign_models.languages import from_flores, to_flores
from xalign_models.paths import data_dir
from xalign_tasks.base import task_metadata
from xalign_tasks.parallel import FLORES_LANGUAGES
from xalign_tasks.zero_shot.task import Labelled, ZeroShotTask

DEVTEST = 997
"""``index_id`` of the first sentence of FLORES-200's devtest; lower ones belong to its dev part."""


class SIB200ZeroShot(ZeroShotTask):
    """SIB-200 under the zero-shot protocol: 701 English sentences to train on, 204 per language to test.

    Local text is FLORES-200's: ``flores200_dataset/dev_sib/<code>.tsv`` (index_id, sentence; SIB-200's rows of the dev
    part), ``devtest/<code>.devtest`` and ``sib_labels.tsv`` (index_id, split, category).
    """

    configs: ClassVar[dict[str, str]] = {code: to_flores(code) for code in FLORES_LANGUAGES}
    label_column = "category"
    metadata = task_metadata("SIB200ZeroShot", FLORES_LANGUAGES)

    def files(self) -> dict[str, tuple[Path, ...]]:
        """SIB-200's dev rows, FLORES-200's devtest and the labels, in every language that has both parts."""
        root = data_dir()
        files: dict[str, tuple[Path, ...]] = {}
        if root is not None and (labels := root / "flores200_dataset" / "sib_labels.tsv").is_file():
            for path in sorted((root / "flores200_dataset" / "dev_sib").glob("*.tsv")):
                devtest = root / "flores200_dataset" / "devtest" / f"{path.stem}.devtest"
                if devtest.is_file():
                    files[from_flores(path.stem)] = path, devtest, labels
        if not files:
            raise DataError(
                "SIB-200 is missing: set XALIGN_DATA to a folder that has flores200_dataset/ with devtest/, dev_sib/ "
                "and sib_labels.tsv (github.com/dadelani/sib-200)."
            )
        return files

    def read_part(self, files: tuple[Path, ...], part: str) -> Labelled:
        """The labelled sentences of a part."""
        dev, devtest, labels = files
        sentences = dict(enumerate(read_lines(devtest), DEVTEST))
        sentences |= {int(index): text for index, text in (line.split("\t", 1) for line in read_lines(dev))}
        rows = [line.split("\t") for line in read_lines(labels)[1:]]
        chosen = [(int(index), category) for index, split, category in rows if split == part]
        if lost := [index for index, _ in chosen if index not in sentences]:
            raise DataError(f"SIB-200: sentence {lost[0]} of {labels} is neither in {dev} nor in {devtest}.")
        return [sentences[index] for index, _ in chosen], [category for _, category in chosen]
