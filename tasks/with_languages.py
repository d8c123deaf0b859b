"""mteb's own cross-lingual tasks, which know the language of each side and do not say it; here they do.

Text, metric, name and revision are mteb's, so that scores compare with any others of the task. Only a ``lang`` column
is added, which a model whose encoding depends on the language reads, and others do not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import mteb

from xalign_models.languages import canonical


class _Labelled:
    """A task whose subsets are named by their languages."""

    metadata: Any
    dataset: Any
    data_loaded: bool

    def load_data(self, **kwargs: Any) -> None:
        """The data of mteb, with the language of each row's sides."""
        if self.data_loaded:
            return
        super().load_data(**kwargs)  # type: ignore[misc]
        self._prepare()
        for subset, splits in self.dataset.items():
            languages = [canonical(one) for one in self.metadata.eval_langs[subset]]
            for name, split in splits.items():
                splits[name] = self._labelled(split, languages)

    def _prepare(self) -> None:
        """Make the data those that :meth:`_labelled` knows."""

    def _labelled(self, split: Any, languages: Sequence[str]) -> Any:
        raise NotImplementedError


class _Searched(_Labelled):
    """A retrieval task whose subsets are named by two languages: the documents', then the queries'."""

    sides: ClassVar[Mapping[str, int]] = {"corpus": 0, "queries": -1}

    def _prepare(self) -> None:
        self.convert_v1_dataset_format_to_v2(num_proc=None)  # type: ignore[attr-defined]

    def _labelled(self, split: Any, languages: Sequence[str]) -> Any:
        labelled = {
            side: split[side].add_column("lang", [languages[place]] * len(split[side]))
            for side, place in self.sides.items()
        }
        return {**split, **labelled}


class _Compared(_Labelled):
    """A similarity task whose subsets are named by one language, or by two: the first column's, then the second's."""

    column_names = ({"sentence1": "text", "lang1": "lang"}, {"sentence2": "text", "lang2": "lang"})

    def _labelled(self, split: Any, languages: Sequence[str]) -> Any:
        for column, place in (("lang1", 0), ("lang2", -1)):
            split = split.add_column(column, [languages[place]] * len(split))
        return split


def _known(name: str, how: type[Any]) -> type[Any]:
    base: type[Any] = type(mteb.get_task(name))
    return type(base.__name__, (how, base), {"__doc__": base.__doc__, "__module__": __name__})


MLQARetrieval = _known("MLQARetrieval", _Searched)
BelebeleRetrieval = _known("BelebeleRetrieval", _Searched)
STS22 = _known("STS22", _Compared)
STS22v2 = _known("STS22.v2", _Compared)
