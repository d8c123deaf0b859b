"""Compositions: alignments fitted in sequence, each on the output of the previous one, saved as one map."""

from collections.abc import Mapping
from dataclasses import MISSING, field, fields, make_dataclass
from functools import cache
from typing import Any, ClassVar, Self, get_type_hints

import numpy as np

from xalign_models.alignments.base import Alignment, as_matrix
from xalign_models.errors import AlignmentError

_UNCOUNTED = {"affine": 1}
"""Increases of a stage's version that the version of compositions, and so committed revisions, never counted."""


class Composed(Alignment):
    """Several alignments in sequence, each fitted on the output of the previous ones; made by :func:`composed`.

    Attributes:
        stages: The methods, the first one first.
        weights_: The product of the maps, (L, d, d).
        shifts_: (L, d).
    """

    arrays = ("weights_", "shifts_")
    stages: ClassVar[tuple[type[Alignment], ...]]

    def fit(self, data: Mapping[str, Any], y: None = None) -> Self:
        """Fit every stage in turn.

        Args:
            data: Translations if any stage is parallel, else embeddings by language. A stage that is not parallel uses
                all rows of each language.
            y: Ignored; pipelines of scikit-learn pass it.

        Raises:
            AlignmentError: A stage cannot be fitted on the data.
        """
        pivot = self.get_params().get("pivot", "")
        current: dict[str, Any] = {
            language: tuple(map(as_matrix, rows, (language, f"{language}'s pivot side")))
            if isinstance(rows, tuple)
            else as_matrix(rows, language)
            for language, rows in data.items()
        }
        given = {one.name: value for one in fields(self) if (value := getattr(self, one.name)) != one.default}  # type: ignore[arg-type]
        probes: dict[str, Any] = {}
        for method in self.stages:
            names = {parameter.name for parameter in fields(method)}  # type: ignore[arg-type]  # a dataclass
            stage = method(**{name: value for name, value in given.items() if name in names})
            stage.fit(current if stage.parallel else unpaired(current, pivot))
            if not probes:  # the basis and the origin, which pass through all stages
                dim = stage.dim_
                probes = dict.fromkeys(stage.languages_, np.concatenate([np.eye(dim), np.zeros((1, dim))]))
            probes = {language: stage.transform(rows, language) for language, rows in probes.items()}
            current = {
                language: (stage.transform(rows[0], language), stage.transform(rows[1], pivot))
                if isinstance(rows, tuple)
                else stage.transform(rows, language)
                for language, rows in current.items()
            }
        chosen = list(probes.values()) if self.language_dependent else list(probes.values())[:1]
        self.shifts_ = np.stack([rows[-1] for rows in chosen])
        self.weights_ = np.stack([rows[:-1] for rows in chosen]) - self.shifts_[:, None]
        self.languages_, self.dim_ = tuple(probes), self.weights_.shape[1]
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by the stages, because no module holds the class."""
        return _restored, (self.stages, self.__dict__)


def _restored(stages: tuple[type[Alignment], ...], state: Mapping[str, Any]) -> Composed:
    method = composed(stages)
    alignment = method.__new__(method)
    alignment.__dict__.update(state)
    return alignment


@cache
def composed(stages: tuple[type[Alignment], ...]) -> type[Composed]:
    """The method that applies ``stages`` in turn, ``centered+procrustes`` for instance.

    It has the parameters of all stages. Stages share parameters of the same name, such as ``pivot``. The composition's
    default is the first stage's; at this value, each stage uses its own default.

    Raises:
        AlignmentError: A stage maps from the pivot.
    """
    parameters: dict[str, tuple[str, Any, Any]] = {}
    version = 1 + sum(stage.version - 1 - _UNCOUNTED.get(stage.method, 0) for stage in stages)
    for stage in stages:
        hints = get_type_hints(stage, include_extras=True)
        for parameter in fields(stage):  # type: ignore[arg-type]
            default = field(default=parameter.default) if parameter.default is not MISSING else field()
            shared = parameters.setdefault(parameter.name, (parameter.name, hints[parameter.name], default))
            version += shared[2].default != parameter.default  # earlier, all stages used the first one's default
    name = "+".join(stage.method for stage in stages)

    def check(self: Composed) -> None:
        Composed.__post_init__(self)
        if getattr(self, "direction", "to_pivot") != "to_pivot":
            raise AlignmentError(f"{name}: direction={self.get_params()['direction']!r}; stages map to the pivot.")

    parallel = any(stage.parallel for stage in stages)
    # Pairs bring the pivot's rows of all prompts together, which a map of the pivot's own language would mix up. Other
    # stages with a pivot need one under each prompt.
    apart = [stage for stage in stages if not (stage.joint or stage.parallel)]
    together = not any(parallel or hasattr(stage, "pivot") for stage in apart)
    namespace = {
        "__doc__": f"{' then '.join(stage.method for stage in stages)}, as one map.",
        "__post_init__": check,
        "method": name,
        "stages": stages,
        "parallel": parallel,
        "version": version,
        "joint": together and any(stage.joint for stage in stages),
        "language_dependent": any(stage.language_dependent for stage in stages),
    }
    return make_dataclass(name, parameters.values(), bases=(Composed,), namespace=namespace, eq=False)


def unpaired(data: Mapping[str, Any], pivot: str | None) -> dict[str, Any]:
    """All rows by language, from rows or (rows, pivot's rows); for the pivot the distinct rows of all pairs."""
    sides = {language: rows[0] if isinstance(rows, tuple) else rows for language, rows in data.items()}
    if pivot and (pivots := [rows[1] for rows in data.values() if isinstance(rows, tuple)]):
        present = [sides[pivot]] if pivot in sides else []
        rows = np.concatenate([*present, *pivots])
        sides[pivot] = rows[[*{row.tobytes(): place for place, row in enumerate(rows)}.values()]]
    return sides
