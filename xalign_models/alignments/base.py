"""Base classes of alignments: one affine map of row vectors per language.

Embeddings are rows everywhere in this package: ``X`` is (n, d) and a map is ``Y = X @ A + b``. A fitted alignment
returns its maps as *factors*, stacked over languages; each factor may be absent:

    ``y = x W_l - (x C_l) C_l^T + b_l``      weight ``W`` (L, d, d), basis ``C`` (L, d, k), shift ``b`` (L, d)

Low-rank maps thus stay factored, and one numpy function and one torch module apply all of them.
"""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache, wraps
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self, get_type_hints, overload

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from xalign_models.errors import AlignmentError, FileError, LanguageError, XAlignError, one_line
from xalign_models.files import is_number, read_json
from xalign_models.languages import match
from xalign_models.linalg.arrays import AnyFloats, Float64
from xalign_models.paths import atomic_file, atomic_write_text

Array = Float64  # name for plug-ins

Fraction = Annotated[float, Field(ge=0, le=1)]
Between = Annotated[float, Field(gt=0, lt=1)]
"""A share of the rows, above 0 and below 1."""

FORMAT = 1
"""Version of the saved format; files of another version are refused."""


class Alignment(ABC):
    """A post-hoc alignment: fitted on embeddings by language, then one fixed affine map for each language.

    Subclasses are dataclasses whose fields are the hyperparameters, checked against their types and the bounds in these
    (pydantic's ``Annotated[int, Field(ge=0)]``); attributes set by ``fit`` end in ``_``.

    Examples:
        >>> import numpy as np
        >>> from xalign_models import alignments
        >>> rng = np.random.default_rng(0)
        >>> vectors = {language: rng.normal(size=(100, 8)) for language in ("deu-Latn", "eng-Latn")}
        >>> alignment = alignments.make("lir", k=2).fit(vectors)
        >>> alignment.save("aligned")
        >>> copy = alignments.load("aligned")
        >>> copy.languages_, copy.fingerprint() == alignment.fingerprint()
        (('deu-Latn', 'eng-Latn'), True)
    """

    method: ClassVar[str]
    """Name in ``METHODS``, in saved files and in model names."""
    arrays: ClassVar[tuple[str, ...]]
    """Names of the fitted float64 arrays, which ``save`` writes."""
    parallel: ClassVar[bool] = False
    """Whether row i must mean the same in every language of the fit data."""
    by_language: ClassVar[bool] = False
    """Whether a language's map depends only on its own fit data and their pivot side."""
    joint: ClassVar[bool] = False
    """Whether one fit covers all prompts, because queries and documents must share a subspace. Each key of the fit data
    is then a :func:`~xalign_models.alignments.groups.group`. Other methods are fitted once per prompt."""
    version: ClassVar[int] = 1
    """Version of the fit; raise it whenever the same data and parameters give a different map."""
    language_dependent: ClassVar[bool] = True
    """Whether ``transform`` needs the language; if False, it accepts any language and None."""

    languages_: tuple[str, ...]
    dim_: int
    seconds_: float | None = None
    """Duration of the fit without encoding, in seconds; None if unknown. The fingerprint does not include it."""
    length_: float | None = None
    """Median length of the vectors of the fit; None if unknown. The fingerprint does not include it."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "fit" in vars(cls):
            cls.fit = _checked(cls.fit)  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        for name, value in self.check(self.get_params()).items():
            setattr(self, name, value)

    @classmethod
    def check(cls, params: Mapping[str, Any], *, strict: bool = False) -> dict[str, Any]:
        """Check hyperparameters by name; a strict check also refuses other types that convert, such as numpy's.

        Returns:
            The hyperparameters, with values of other types converted.

        Raises:
            AlignmentError: A parameter is unknown, of another type or out of range.
        """
        types = _types(cls)
        if unknown := params.keys() - types.keys():
            allowed = ", ".join(types) or "no parameters"
            raise AlignmentError(f"{cls.method} has no {', '.join(sorted(unknown))}; it has {allowed}.")
        found = {}
        for name, value in params.items():
            try:
                valid = types[name].validate_python(value, strict=strict)
                found[name] = value if type(value) in {type(valid), int} else valid  # fingerprints hold 1 for 1.0
            except ValidationError as error:
                reason = error.errors()[0]["msg"].replace("Input should be", "it must be")
                raise AlignmentError(f"{cls.method}: {name}={value!r}; {reason}.") from None
        return found

    @abstractmethod
    def fit(self, data: Mapping[str, Any], y: None = None) -> Self:
        """Learn the maps, computing in float64; sets ``languages_``, ``dim_`` and the method's own attributes.

        Other errors of a subclass become AlignmentErrors that name the method, and its maps are checked.
        """

    def factors(self) -> dict[str, Float64]:
        """The maps as stacked "weight", "basis" and "shift"; the first axis follows ``languages_``, or is 1 long.

        By default, the fitted arrays ``weights_`` and ``shifts_``. A method that is not affine uses its own names.
        """
        names = {"weights_": "weight", "shifts_": "shift"}
        return {name: getattr(self, array) for array, name in names.items() if array in self.arrays}

    @overload
    def transform(self, x: Mapping[str, npt.ArrayLike]) -> dict[str, AnyFloats]: ...
    @overload
    def transform(self, x: npt.ArrayLike, language: str | Sequence[str] | None = None) -> AnyFloats: ...
    def transform(self, x: Any, language: str | Sequence[str] | None = None) -> Any:
        """Map embeddings into the shared space.

        Args:
            x: Embeddings (n, d), or embeddings by language, as in a scikit-learn pipeline; never changed.
            language: The language of all rows, or one per row; ignored if the alignment is language-independent.

        Returns:
            New embeddings (n, d) of the same float dtype (float64 for integers), computed in float64; a dictionary by
            language if ``x`` is one.

        Raises:
            LanguageError: A language is missing or was not fitted.
            AlignmentError: The alignment is not fitted, or ``x`` has another dimension, another number of rows than
                ``language``, or non-finite values.
        """
        if isinstance(x, Mapping):
            return {code: self.transform(rows, code) for code, rows in x.items()}
        self._check_fitted()
        rows = as_matrix(x, "the input", empty_ok=True)
        if rows.shape[1] != self.dim_:
            raise AlignmentError(
                f"the input has dimension {rows.shape[1]}, but {self.method} was fitted on {self.dim_}; "
                "use embeddings of the backbone it was fitted on."
            )
        fitted = self.languages_ if self.language_dependent else None
        factors = self.factors()
        out = np.empty(rows.shape, np.float16 if getattr(x, "dtype", None) == np.float16 else rows.dtype)
        for index, selected in rows_by_language(language, len(rows), fitted, self.method):
            chosen = {name: stack[index] for name, stack in factors.items()}
            out[selected] = self.apply(rows[selected].astype(np.float64), **chosen)
        return out

    @staticmethod
    def apply(x: Any, weight: Any = None, basis: Any = None, shift: Any = None) -> Any:
        """Map rows (n, d) of one language by its factors, all numpy arrays or all tensors.

        A method that is not affine overrides this.
        """
        y = x if weight is None else x @ weight
        if basis is not None:
            y = y - (y @ basis) @ basis.T
        return y if shift is None else y + shift

    def module(self) -> Any:
        """The torch module that applies the fitted alignment after an encoder.

        None stands for :class:`~xalign_models.alignments.module.Aligned`, which applies any affine map. A method that
        is not affine returns ``Subclass.of(self)`` for its own subclass, which ``register.module`` registers.
        """
        return None

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The hyperparameters by name, as given to the constructor; ``deep`` is for scikit-learn and has no effect."""
        return {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]  # a dataclass

    def set_params(self, **params: Any) -> Self:
        """Set hyperparameters by name; the fitted maps stay until the next fit.

        Raises:
            AlignmentError: A parameter is unknown or out of range.
        """
        self.check(params)
        for name, value in type(self)(**self.get_params() | params).get_params().items():
            setattr(self, name, value)
        return self

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags, TransformerTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False), transformer_tags=TransformerTags())

    def get_metadata_routing(self) -> Any:
        """A request for ``language`` in ``transform``, which scikit-learn's pipelines pass on if routing is enabled."""
        from sklearn.utils.metadata_routing import MetadataRequest

        request = MetadataRequest(owner=self)
        request.transform.add_request(param="language", alias=True)
        return request

    def fingerprint(self) -> str:
        """Sha256 (hex) of everything that determines the maps: method, parameters, languages and arrays."""
        return self._fingerprint(self.get_params())

    def _fingerprint(self, params: Mapping[str, Any]) -> str:
        self._check_fitted()
        header = {"format": FORMAT, "method": self.method, "params": params, "languages": self.languages_}
        digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
        for name in self.arrays:
            array: Float64 = getattr(self, name)
            digest.update(f"{name}{array.shape}".encode() + np.ascontiguousarray(array, "<f8").tobytes())
        return digest.hexdigest()

    def save(self, directory: str | Path) -> None:
        """Write ``alignment.safetensors`` and ``alignment.json`` into ``directory``; loading gives the exact same maps.

        Raises:
            AlignmentError: The alignment is not fitted.
        """
        header = {
            "format": FORMAT,
            "method": self.method,
            "params": self.get_params(),
            "languages": self.languages_,
            "dim": self.dim_,
            "fingerprint": self.fingerprint(),
            "seconds": self.seconds_,
            "length": self.length_,
        }
        with atomic_file(Path(directory) / "alignment.safetensors") as path:
            path.write_bytes(save({name: np.ascontiguousarray(getattr(self, name)) for name in self.arrays}))
        atomic_write_text(Path(directory) / "alignment.json", json.dumps(header, indent=2, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, directory: str | Path) -> Self:
        """Read an alignment that ``save`` wrote; ``alignments.load`` reads any method's.

        Raises:
            AlignmentError: The directory has no saved alignment, another method or format version, or damaged files.
        """
        header = read_header(directory)
        if header["method"] != cls.method:
            raise AlignmentError(
                f"{directory} holds a {header['method']!r} alignment, not {cls.method!r}; use alignments.load."
            )
        try:
            alignment = cls(**header["params"])
            arrays = load_file(Path(directory) / "alignment.safetensors")
            for name, array in arrays.items():
                setattr(alignment, name, array)
            alignment.languages_, alignment.dim_ = tuple(header["languages"]), header["dim"]
            for name in ("seconds", "length"):  # not covered by the fingerprint, so they may be anything
                setattr(alignment, f"{name}_", value if is_number(value := header.get(name)) else None)
            intact = arrays.keys() == {*cls.arrays}
            intact = intact and alignment._fingerprint(header["params"]) == header["fingerprint"]
        except (OSError, SafetensorError, KeyError, TypeError, AttributeError):
            intact = False
        if not intact:
            raise AlignmentError(f"the alignment in {directory} is damaged; fit and save it again.")
        return alignment

    def _check_fitted(self) -> None:
        if not hasattr(self, "languages_"):
            raise AlignmentError(f"{self.method} is not fitted; call fit or load first.")
        if not self.arrays or not isinstance(self.arrays, tuple):
            raise AlignmentError(f"{self.method}: arrays must be a tuple of the names of the fitted arrays.")
        if missing := [name for name in self.arrays if not isinstance(getattr(self, name, None), np.ndarray)]:
            raise AlignmentError(f"{self.method}: fit must set {missing[0]}, a name in arrays, to a numpy array.")

    def _check_maps(self) -> None:
        """Refuse fitted arrays and factors that no map can have."""
        if missing := [name for name in ("languages_", "dim_") if not hasattr(self, name)]:
            raise AlignmentError(f"{self.method}: fit must set {missing[0]}.")
        self._check_fitted()
        parts, affine = {name: getattr(self, name) for name in self.arrays}, type(self).apply is Alignment.apply
        stack, dim = len(self.languages_) if self.language_dependent else 1, self.dim_
        shapes = {"weight": (stack, dim, dim), "basis": (stack, dim, None), "shift": (stack, dim)}
        if affine:
            factors: Any = self.factors()
            if not isinstance(factors, Mapping) or not factors.keys() <= shapes.keys():
                raise AlignmentError(f"{self.method}: factors must return a dictionary of weight, basis and shift.")
            parts |= factors
        for name, part in parts.items():
            if not isinstance(part, np.ndarray) or part.dtype.kind not in "fiub" or not np.isfinite(part).all():
                raise AlignmentError(f"{self.method}: {name} must be an array of finite real numbers after fit.")
            shape: Any = shapes.get(name, part.shape) if affine else part.shape  # None for any length
            fits = part.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, part.shape, strict=True))
            if not fits:
                wanted = str(shape).replace("None", "k")
                raise AlignmentError(f"{self.method}: {name} has shape {part.shape} after fit; it must be {wanted}.")


def _checked(fit: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method's fit: its errors name the method, and its maps are checked."""

    @wraps(fit)
    def checked(self: Alignment, *args: Any, **kwargs: Any) -> Any:
        if getattr(type(self).fit, "__wrapped__", None) is not fit:  # a subclass's fit calls this one, and is checked
            return fit(self, *args, **kwargs)
        try:
            fitted = fit(self, *args, **kwargs)
        except (XAlignError, MemoryError, Warning):
            raise
        except Exception as error:
            raise AlignmentError(f"{self.method} cannot be fitted: {one_line(error)}.") from error
        self._check_maps()
        return fitted

    return checked


@cache
def _types(kind: type[Alignment]) -> dict[str, TypeAdapter[Any]]:
    """The check of each hyperparameter of a method, by name."""
    hints, config = get_type_hints(kind, include_extras=True), ConfigDict(arbitrary_types_allowed=True)
    return {field.name: TypeAdapter(hints[field.name], config=config) for field in fields(kind)}  # type: ignore[arg-type]


class UnpairedAlignment(Alignment):
    """An alignment fitted on any embeddings of each language, without translations."""

    def fit(self, data: Mapping[str, npt.ArrayLike], y: None = None) -> Self:
        """Fit on embeddings of each language.

        Args:
            data: Language to its embeddings (n_l, d), any float dtype; languages are opaque strings.
            y: Ignored; pipelines of scikit-learn pass it.

        Raises:
            AlignmentError: There is no data, a matrix is empty or not finite, dimensions differ, or the method's pivot
                is not among the languages.
        """
        require_mapping(data)
        matrices = {language: read_only(as_matrix(rows, language)) for language, rows in data.items()}
        dim = common_dim(matrices)
        if (pivot := getattr(self, "pivot", None)) and pivot not in matrices:
            raise AlignmentError(
                f"the pivot {pivot} is not among {', '.join(matrices)}; add its rows, or pass another key as pivot=."
            )
        self._fit(matrices)
        self.languages_, self.dim_ = tuple(matrices), dim
        return self

    @abstractmethod
    def _fit(self, matrices: Mapping[str, AnyFloats]) -> None:
        """Set the fitted arrays from checked matrices, which are read-only because they may belong to the caller."""


def read_header(directory: str | Path) -> dict[str, Any]:
    """The parsed ``alignment.json``.

    Raises:
        AlignmentError: The file is missing, unreadable, or of another format version.
    """
    path = Path(directory) / "alignment.json"
    try:
        header = read_json(path)
        version, _ = header["format"], header["method"]
    except (FileError, KeyError):
        raise AlignmentError(f"{path} is missing or unreadable; name a directory of a saved alignment.") from None
    if version != FORMAT:
        raise AlignmentError(f"{path} has format {version!r}, but this version reads {FORMAT}; fit and save it again.")
    return header


def require_mapping(data: Any) -> None:
    """Refuse fit data that is not a mapping by language.

    Raises:
        AlignmentError: The data is not a mapping.
    """
    if not isinstance(data, Mapping):
        raise AlignmentError(f"pass a mapping from language to embeddings (n, d), not a {type(data).__name__}.")


def as_matrix(rows: npt.ArrayLike, label: str, *, empty_ok: bool = False) -> AnyFloats:
    """``rows`` as a finite float matrix (n, d), without a copy where possible, and float32 for half precision.

    ``label`` names it in errors.

    Raises:
        AlignmentError: Not two-dimensional, without rows, or non-finite.
    """
    tensor: Any = rows.detach().cpu() if hasattr(rows, "detach") else None
    try:
        matrix = np.asarray(rows if tensor is None else tensor.float() if tensor.element_size() == 2 else tensor)
        if matrix.dtype.kind != "f":
            matrix = matrix.astype(np.float64, casting="same_kind" if matrix.dtype.kind == "c" else "unsafe")
        if matrix.dtype == np.float16:
            matrix = matrix.astype(np.float32)
    except (ValueError, TypeError) as error:
        raise AlignmentError(f"{label} is not a matrix of real numbers: {one_line(error)}.") from None
    if matrix.ndim != 2 or not (len(matrix) or empty_ok):
        raise AlignmentError(f"{label} has shape {matrix.shape}; pass a matrix (n, d) with n > 0 rows.")
    bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if bad.size:
        raise AlignmentError(f"{label}, row {bad[0]} is not finite ({bad.size} such rows); remove or re-encode them.")
    return matrix


def read_only(matrix: AnyFloats) -> AnyFloats:
    """A read-only view of a matrix."""
    view = matrix.view()
    view.flags.writeable = False
    return view


def common_dim(matrices: Mapping[str, AnyFloats]) -> int:
    """The dimension that all matrices share.

    Raises:
        AlignmentError: There are no matrices, or dimensions differ.
    """
    if not matrices:
        raise AlignmentError("no languages to fit on; pass a mapping from language to embeddings (n, d).")
    dims = {language: int(matrix.shape[1]) for language, matrix in matrices.items()}
    if len(set(dims.values())) > 1:
        raise AlignmentError(f"dimensions differ: {listed(dims)}; use one backbone for all languages.")
    return next(iter(dims.values()))


def listed(counts: Mapping[str, int]) -> str:
    """Counts by language, for error messages."""
    return ", ".join(f"{language} {count}" for language, count in counts.items())


def rows_by_language(
    language: str | Sequence[str | None] | None,
    count: int,
    fitted: Sequence[str] | None,
    method: str,
    stand_in: Callable[[str | None], int | None] = lambda code: None,
) -> list[tuple[int, slice | list[int]]]:
    """The rows that each map applies to: (position in ``fitted``, rows) for every language present.

    Args:
        language: The language of all rows, or one per row.
        count: The number of rows.
        fitted: The fitted languages; None if one map serves all rows.
        method: Name of the method, for messages.
        stand_in: Function that gives the position for a language that is missing or not fitted; None refuses it.

    Raises:
        LanguageError: A language is missing or not fitted, and has no stand-in.
        AlignmentError: The number of languages is not the number of rows.
    """
    if fitted is None:
        return [(0, slice(None))]
    groups: dict[str | None, Any] = {}
    if language is None or isinstance(language, str):
        groups[language] = slice(None)
    elif not hasattr(language, "__len__"):
        raise LanguageError(f"{language!r} is not a language; pass one per row, or one string for all.")
    elif len(language) != count:
        raise AlignmentError(f"Pass one language per row ({count}), not {len(language)}, or one string for all.")
    else:
        for row, code in enumerate(language):
            groups.setdefault(code, []).append(row)
    found = {code: code and match(code, fitted) for code in groups}
    places = {code: fitted.index(name) if name in fitted else stand_in(name) for code, name in found.items()}
    if refused := [code for code, place in places.items() if place is None]:
        fitted_languages = f"fitted languages: {', '.join(fitted)}."
        if None in refused:
            raise LanguageError(
                f"{method} needs the language of every text; pass language= to transform, lang= to encode, or inputs "
                f"{{'text': ..., 'lang': ...}}; {fitted_languages} Give mteb.evaluate xalign_models.as_mteb(model)."
            )
        raise LanguageError(f"{method} is not fitted for {', '.join(sorted(map(str, refused)))}; {fitted_languages}")
    return [(place, groups[code]) for code, place in places.items() if place is not None]
