"""The one way to open a checkpoint: published models, LoRA's bases, the parts of LUSIFER and LiRA, translators.

What may be loaded is :mod:`~xalign_models.backbones.policy`'s decision, whether weights are those of the model
:mod:`~xalign_models.backbones.weights`'. Whatever a checkpoint makes its loader raise ends here as one line.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from xalign_models.backbones import policy
from xalign_models.backbones.weights import require_fit, require_size, require_types, require_vocabulary
from xalign_models.errors import AssetError, XAlignError, one_line

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from xalign_models.assets import ResolvedModel
    from xalign_models.backbones.transformer import LanguageTransformer


def open_config(resolved: ResolvedModel, *, trust: bool = False, **changes: Any) -> Any:
    """A checkpoint's transformers configuration, with fields changed.

    Raises:
        ModelError: The checkpoint names code.
        AssetError: There is no configuration.
    """
    from transformers import AutoConfig

    return open_pretrained(AutoConfig, resolved, trust=trust, **changes)


def open_pretrained(kind: Any, resolved: ResolvedModel, *, trust: bool = False, **options: Any) -> Any:
    """What one of transformers' Auto classes makes of a checkpoint; the weights of a model are all there.

    Args:
        kind: AutoConfig, AutoTokenizer, AutoModel, ...
        resolved: The checkpoint.
        trust: Whether the model may run its own code.
        **options: For ``from_pretrained``.

    Raises:
        ModelError: The checkpoint names code, or its weights are not the model's.
        AssetError: It cannot be loaded.
    """
    policy.check(resolved, trust=trust)
    options |= _hub(resolved, trust)
    with opened(resolved.path_or_id), quiet():
        if not hasattr(kind, "_model_mapping"):
            made = kind.from_pretrained(resolved.path_or_id, **options)
            if hasattr(made, "all_special_ids"):
                require_vocabulary(made, resolved.path_or_id)
            return made
        if resolved.source != "hub":
            require_types(Path(resolved.path_or_id))
            config = options.get("config") or open_config(resolved, trust=trust)
            require_size(config, Path(resolved.path_or_id))
        model, info = kind.from_pretrained(
            resolved.path_or_id, output_loading_info=True, ignore_mismatched_sizes=True, use_safetensors=True, **options
        )
        require_fit(info, resolved.path_or_id)
        return model


def open_transformer(
    kind: type[LanguageTransformer], resolved: ResolvedModel, dtype: str, *, trust: bool = False, **arguments: Any
) -> LanguageTransformer:
    """A checkpoint as the first module of a model.

    Args:
        kind: The module's class.
        resolved: The checkpoint.
        dtype: Of its weights, e.g. ``bfloat16``.
        trust: Whether the model may run its own code.
        **arguments: For the class.

    Raises:
        ModelError: The checkpoint names code, or its weights are not the model's.
        AssetError: It cannot be loaded.
    """
    policy.check(resolved, trust=trust)
    hub = _hub(resolved, trust)
    config = {**hub, **arguments.pop("config_kwargs", {})}
    with opened(resolved.path_or_id), quiet():
        return kind(
            resolved.path_or_id,
            model_kwargs={**hub, "torch_dtype": dtype},
            processor_kwargs=dict(hub),
            config_kwargs=config,
            **arguments,
        )


def open_pipeline(resolved: ResolvedModel, device: str, *, trust: bool = False, **options: Any) -> SentenceTransformer:
    """A sentence-transformers model, published or saved by us; code that it brings along is not run.

    The classes that its ``modules.json`` names are handed over, so that nothing is imported by a name in a file.

    Args:
        resolved: A directory or a hub id with a ``modules.json``.
        device: cpu, cuda or mps.
        trust: Whether the model may run its own code.
        **options: For SentenceTransformer.

    Raises:
        ModelError: It has modules of others, or code, or its weights are not the model's.
        AssetError: It cannot be loaded.
    """
    from sentence_transformers import SentenceTransformer

    policy.check(resolved, trust=trust)
    with opened(resolved.path_or_id), quiet():
        model: SentenceTransformer = SentenceTransformer._load_with_module_classes(
            resolved.path_or_id,
            policy.module_classes(resolved),
            device=device,
            trust_remote_code=trust,
            revision=resolved.revision,
            **options,
        )
        for folder in policy.folders_of_maps(resolved):
            require_types(folder)
        return model


@contextmanager
def opened(model: str) -> Iterator[None]:
    """One line for whatever a loader raises: it meets files that anybody may have written.

    Raises:
        AssetError: In place of any error that is not ours.
    """
    try:
        yield
    except XAlignError:
        raise
    except Exception as error:
        raise AssetError(f"{model!r} cannot be loaded: {one_line(error)}") from error


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' reports and bars away; what they report is checked here."""
    from transformers.utils import logging as transformers_logging

    level = transformers_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()


def _hub(resolved: ResolvedModel, trust: bool) -> dict[str, Any]:
    return {"trust_remote_code": trust, **({"revision": resolved.revision} if resolved.revision else {})}
