"""mteb's own cross-lingual tasks, which know the language of each side and do not say it; here they do.

Text, metric, name and revision are mteb's, so that scores compare with any others of the task. Only a ``lang`` column
is added, which a model whose encoding depends on the language reads, and others do not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import mteb

from xalign_models.languages import canonical


class _Searched:
    """A retrieval task whose subsets are named by two languages: the documents', then the queries'."""

    sides: ClassVar[Mapping[str, int]] = {"corpus": 0, "queries": -1}
    metadata: Any
    dataset: Any
    data_loaded: bool

    def load_data(self, **kwargs: Any) -> None:
        """The data of mteb, with the language of each row."""
        if self.data_loaded:
            return
        super().load_data(**kwargs)  # type: ignore[misc]
        self.convert_v1_dataset_format_to_v2(num_proc=None)  # type: ignore[attr-defined]
        for subset, splits in self.dataset.items():
            languages = [canonical(one) for one in self.metadata.eval_langs[subset]]
            for split in splits.values():
                for side, place in self.sides.items():
                    table = split[side]
                    split[side] = table.add_column("lang", [languages[place]] * len(table))


class _Compared:
    """A similarity task whose subsets are named by one language, or by two: the first column's, then the second's."""

    column_names = ({"sentence1": "text", "lang1": "lang"}, {"sentence2": "text", "lang2": "lang"})
    metadata: Any
    dataset: Any
    data_loaded: bool

    def load_data(self, **kwargs: Any) -> None:
        """The data of mteb, with the language of each row's sides."""
        if self.data_loaded:
            return
        super().load_data(**kwargs)  # type: ignore[misc]
        for subset, splits in self.dataset.items():
            languages = [canonical(one) for one in self.metadata.eval_langs[subset]]
            for name, table in splits.items():
                for column, place in (("lang1", 0), ("lang2", -1)):
                    table = table.add_column(column, [languages[place]] * len(table))  # noqa: PLW2901
                splits[name] = table


def _known(name: str, how: type[Any]) -> type[Any]:
    base: type[Any] = type(mteb.get_task(name))
    return type(base.__name__, (how, base), {"__doc__": base.__doc__, "__module__": __name__})


MLQARetrieval = _known("MLQARetrieval", _Searched)
BelebeleRetrieval = _known("BelebeleRetrieval", _Searched)
STS22 = _known("STS22", _Compared)
STS22v2 = _known("STS22.v2", _Compared)
REPLACED: tuple[type[Any], ...] = (MLQARetrieval, BelebeleRetrieval, STS22, STS22v2)
"""They take the places of mteb's tasks of their names."""
