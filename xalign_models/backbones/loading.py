"""Opens a backbone: its identity, prompts and modules for raw vectors, from its spec."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

from xalign_models import assets
from xalign_models.assets import Inspected, ResolvedModel
from xalign_models.backbones import policy
from xalign_models.backbones.checkpoint import open_config, open_pipeline, open_transformer, opened
from xalign_models.backbones.inputs import SLOT, split_side, with_side
from xalign_models.backbones.sources import Source, find_source
from xalign_models.device import pick_device
from xalign_models.errors import LanguageError, ModelError
from xalign_models.languages import is_canonical
from xalign_models.specs import COMPILED, BackboneSpec, Dtype, Pooling, Precision, digest

if TYPE_CHECKING:
    from torch import nn

    from xalign_models.backbones.transformer import LanguageTransformer

logger = logging.getLogger(__name__)


class Backbone:
    """A backbone with a known source. Each of its facts is computed once, when first needed.

    Raises:
        ModelError: A field of the spec does not apply to the source.
    """

    def __init__(self, spec: BackboneSpec, files: Inspected | None = None) -> None:
        self.spec = spec
        checkpoint = Checkpoint(spec, files)
        self.source = find_source(spec.model) or checkpoint
        for field in dataclasses.fields(spec):
            if field.name not in self.source.settable and getattr(spec, field.name) != field.default:
                flag = f"--{field.name.replace('_', '-')}"
                raise ModelError(f"{flag} does not apply to {self.source.model}; leave it out.")

    @cached_property
    def fingerprint(self) -> str:
        """Sha256 (hex) of everything that determines the raw vector of a prompted text: weights, tokenizer, spec.

        Raises:
            ModelError: A LUSIFER model is not trained yet.
            AssetError: The weights are missing.
        """
        fields = self.spec.encoding_fields()
        if isinstance(self.source, Checkpoint) and is_upcast(self.spec):
            fields["computed_in"] = "float32"
        return digest(self._identity, fields)

    @cached_property
    def _identity(self) -> str:
        return self.source.fingerprint()

    def confirm(self) -> None:
        """Refuse a source that no longer matches the fingerprint; vectors are stored only after this check.

        Raises:
            ModelError: It has changed.
        """
        self.source.confirm(self._identity)

    @cached_property
    def prompts(self) -> dict[str, str]:
        """The source's prompts, replaced by those of the spec.

        If a prompt of the spec surrounds the text, the spec's prompts stand alone: the checkpoint's instructions do
        not fit them.
        """
        own = dict(self.spec.prompts)
        return own if any(SLOT in prompt for prompt in own.values()) else {**self.source.prompts(), **own}

    def modules(self, device: str) -> tuple[nn.Module, ...]:
        """New modules up to, not including, any normalisation: together they give the raw vector in float32.

        A sentence-transformers directory keeps its own modules (pooling, dense layers) unless the spec sets a layer or
        a pooling; any other checkpoint is pooled as the spec says. The first module is a LanguageTransformer. Modules
        come from the files that the fingerprint identifies.

        Raises:
            AssetError: The checkpoint is unavailable.
            ModelError: It is not a text encoder, is aligned already, lacks the layer, was trained here with another
                layer or pooling, or has changed since.
        """
        _ = self._identity  # before the weights are opened
        from xalign_models.backbones.router import first_modules

        modules = self.source.modules(self.spec, device)
        own = {key: text for key, text in self.prompts.items() if key == "default" or is_canonical(key)}
        for first in first_modules(modules):
            if hasattr(first, "prompts"):
                first.prompts = own if own.keys() - {"default"} else {}
        self.confirm()
        return modules


def open_backbone(spec: BackboneSpec | Backbone) -> Backbone:
    """A new backbone, whose files may have changed since an earlier opening; an open backbone is returned as is."""
    return spec if isinstance(spec, Backbone) else Backbone(spec)


def shared_modules(spec: BackboneSpec | Backbone, device: str, fingerprint: str | None = None) -> tuple[nn.Module, ...]:
    """:meth:`Backbone.modules`, shared by consecutive models of one backbone.

    Raises:
        ModelError: The backbone's fingerprint differs from the given one, which another process found.
    """
    backbone = open_backbone(spec)
    if fingerprint not in {None, backbone.fingerprint}:
        raise ModelError(f"{backbone.spec.model} changed while it was in use. Run the command again.")
    key = (backbone.spec.whole, device, backbone.fingerprint)  # a checkpoint may change under its path
    with suppress(KeyError, ModelError):  # weights may be mapped from a file that was replaced since
        found, modules = _shared[key]  # once, as another thread may clear it
        found.confirm()
        return modules
    _shared.clear()
    modules = backbone.modules(device)
    _shared[key] = backbone, modules
    return modules


_shared: dict[tuple[BackboneSpec, str, str], tuple[Backbone, tuple[nn.Module, ...]]] = {}
"""The last loaded backbone and its modules."""


def is_upcast(spec: BackboneSpec) -> bool:
    """Whether half-precision weights compute in float32, as on a CPU that is slow at half precision."""
    if spec.dtype is Dtype.FLOAT32 or pick_device() != "cpu":
        return False
    from xalign_models.linalg import onednn

    consequence = "Weights keep their values, and computation is in float32. Models get another revision."
    return onednn.is_slow(str(spec.dtype), consequence)


class Checkpoint(Source):
    """An installed asset, a directory or a model on the hub; see :class:`Backbone` for the arguments."""

    settable = frozenset(field.name for field in dataclasses.fields(BackboneSpec))
    has_weights = True

    def __init__(self, spec: BackboneSpec, files: Inspected | None = None) -> None:
        super().__init__(spec.model)
        self.spec, self._files = spec, files

    @cached_property
    def resolved(self) -> ResolvedModel:
        """The checkpoint's place and fingerprint.

        Raises:
            ModelError: A LUSIFER model is not trained yet.
            AssetError: The checkpoint is unavailable.
        """
        spec = self.spec
        if spec.llm and not policy.has_own_modules(self._files or Inspected(assets.place(spec.model))):
            raise ModelError(
                f"xalign/{spec.tuned}__{spec.name} is not trained yet. Train it with `xalign train lusifer --config "
                "small` (or paper), or give the directory of a trained one."
            )
        return assets.resolve(spec.model, spec.revision, self._files)

    def fingerprint(self) -> str:
        """Identity of the weights and the tokenizer."""
        return self.resolved.fingerprint

    def confirm(self, fingerprint: str) -> None:
        """Refuse changed files; a commit on the hub never changes."""
        self.resolved.confirm()

    def prompts(self) -> Mapping[str, str]:
        """The prompts of the checkpoint's sentence-transformers configuration, with its default one as ``default``.

        Raises:
            ModelError: The prompts are damaged.
        """
        settings = self.resolved.files.settings("config_sentence_transformers.json")
        published, default = settings.get("prompts") or {}, settings.get("default_prompt_name")
        if not isinstance(published, dict) or not all(isinstance(text, str | None) for text in published.values()):
            raise ModelError(f"{self.model}: its prompts are damaged; expected names and texts.")
        return named_prompts(published, default if isinstance(default, str) else None)

    def sides(self) -> frozenset[str]:
        """The sides that a Router sends along another route than texts without a side."""
        resolved = self.resolved
        if not (routers := policy.routers(resolved.files)):
            return frozenset()
        from xalign_models.backbones.router import read_routes, sides_of

        with opened(self.model):
            policy.check(resolved.files, trust=self.spec.trust_remote_code)
            return sides_of(read_routes(resolved.files.directory, *router) for router in routers.items())

    def facts(self) -> Mapping[str, Any]:
        """Facts about an asset, from the catalogue."""
        asset = next((asset for asset in assets.list_assets() if asset.name == self.model), None)
        if asset is None:
            return {}
        licence = "gemma" if asset.licence.startswith("Gemma") else asset.licence.lower()
        facts = {"n_parameters": asset.parameters, "embed_dim": asset.dimension, "reference": asset.source}
        return {**facts, "license": licence}

    def modules(self, spec: BackboneSpec, device: str) -> tuple[nn.Module, ...]:
        """See :meth:`Backbone.modules`."""
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.sentence_transformer.modules import Pooling as PoolingModule

        from xalign_models.backbones.router import first_modules

        resolved = _with_graph(self.resolved, spec)
        with opened(spec.model):
            files, config = resolved.files, self.resolved.files.settings("config.json")
            as_published = spec.layer is None and spec.pooling is Pooling.PUBLISHED
            if not as_published and policy.routers(files):
                raise ModelError(f"{spec.model} has routes for queries and documents; leave out --layer and --pooling.")
            settings = files.settings("config_sentence_transformers.json")
            similarity, dim = settings.get("similarity_fn_name"), settings.get("truncate_dim")
            if as_published and similarity not in {None, "cosine"}:
                logger.warning("%s is meant for the similarity %s; xalign compares by cosine.", spec.model, similarity)
            if "universal_learner_name_or_path" in config:
                raise ModelError(f"{spec.model} is a LUSIFER in its authors' format; write lusifer:{spec.model}.")
            if as_published and files.has("modules.json"):
                modules = _published(spec, resolved, device)
                if dim and spec.truncate_dim is None:
                    width = SentenceTransformer(modules=modules, device=device).get_embedding_dimension()
                    if dim < (width or math.inf):
                        told = "%s asks for %d dimensions; xalign keeps all. Add --truncate-dim %d."
                        logger.warning(told, spec.model, dim, dim)
            elif as_published and config.get("model_type") == "model2vec":
                from xalign_models.backbones.static import LanguageStatic

                policy.check(resolved.files)
                modules = [LanguageStatic.load(resolved.path_or_id, revision=resolved.revision)]
            elif spec.tuned:
                raise ModelError(f"{spec.model} was trained with its layer and pooling; they cannot be changed.")
            else:
                first = _transformer(spec, resolved)
                if first.module_output_name == "sentence_embedding":
                    raise ModelError(
                        f"{spec.model} has no vectors of tokens to pool. Run sentence-transformers' "
                        "SentenceTransformer(MODEL).save_pretrained(DIRECTORY), and give DIRECTORY without --pooling."
                    )
                mode = {Pooling.PUBLISHED: "mean", Pooling.LAST: "lasttoken"}.get(spec.pooling, str(spec.pooling))
                modules = [first, PoolingModule(first.get_embedding_dimension(), pooling_mode=mode)]
            for first in first_modules(modules):
                _apply(spec, first, resolved)
            if is_upcast(spec):
                modules = [module.float() for module in modules]
            return tuple(module.to(device).eval() for module in modules)


def _published(spec: BackboneSpec, resolved: ResolvedModel, device: str) -> list[Any]:
    """A checkpoint's own modules, without normalisation at the end."""
    from sentence_transformers.sentence_transformer.modules import Normalize

    from xalign_models.alignments.module import Aligned
    from xalign_models.backbones.router import first_modules
    from xalign_models.backbones.transformer import CheckedTransformer

    options = {"torch_dtype": str(spec.dtype), **({"graph": spec.graph} if spec.graph else {})}
    pipeline = open_pipeline(resolved, device, trust=spec.trust_remote_code, model_kwargs=options)
    modules = list(pipeline)
    while isinstance(modules[-1], Normalize):
        modules.pop()
    if any(isinstance(module, Aligned) for module in modules):
        raise ModelError(f"{spec.model} is aligned already; give its backbone.")
    for first in first_modules(modules):
        if type(first) is CheckedTransformer:
            _kind(first.config).adopt(first)
    return modules


def _transformer(spec: BackboneSpec, resolved: ResolvedModel) -> Any:
    """A checkpoint's transformer, up to the layer of the spec."""
    below = _below(resolved)
    config = open_config(below, trust=spec.trust_remote_code and below is resolved)
    arguments: dict[str, Any] = {"trust": spec.trust_remote_code, "pool_special_tokens": spec.special_tokens}
    arguments |= {"graph": spec.graph} if spec.graph else {}
    if spec.layer is not None:
        layers = config.num_hidden_layers
        if spec.layer > layers:
            raise ModelError(f"--layer {spec.layer}: {spec.model} has {layers} layers, so 0 to {layers}.")
        # One more layer than requested, if there is one: some models put a final norm on their last hidden state.
        arguments["config_kwargs"] = {"num_hidden_layers": min(spec.layer + 1, layers)}
        output = {"method": "forward", "method_output_name": ["hidden_states", spec.layer]}
        arguments |= {"modality_config": {"text": output}, "module_output_name": "token_embeddings"}
    return open_transformer(_kind(config), resolved, str(spec.dtype), **arguments)


def _kind(config: Any) -> type[LanguageTransformer]:
    from xalign_models.backbones.prompt_eol import PromptEOL
    from xalign_models.backbones.transformer import LanguageTransformer

    causal = any(name.endswith(("ForCausalLM", "LMHeadModel")) for name in config.architectures or ())
    return PromptEOL if causal and not config.is_encoder_decoder else LanguageTransformer


def _apply(spec: BackboneSpec, first: Any, resolved: ResolvedModel) -> None:
    """Set a spec's options in a first module; refuse options for transformers if the module is not one."""
    from xalign_models.backbones.packing import find_limit
    from xalign_models.backbones.transformer import LanguageTransformer

    if spec.graph and getattr(first, "graph", None) != spec.graph:
        raise ModelError(f"--backend {spec.backend} is for transformers; {spec.model} is not one.")
    chosen = {"precision": spec.precision is not Precision.NATIVE, "backend": spec.backend == COMPILED}
    if not spec.llm:  # a LUSIFER keeps its type and truncates its texts
        chosen |= {"max-tokens": spec.max_tokens is not None, "dtype": spec.dtype is not Dtype.FLOAT32}
    if not isinstance(first, LanguageTransformer) and any(chosen.values()):
        option = next(option for option, is_set in chosen.items() if is_set)
        value = getattr(spec, option.replace("-", "_"))
        raise ModelError(f"--{option} {value} is for transformers; {spec.model} is not one.")
    if spec.precision is Precision.INT8:
        first.to_int8()
    if isinstance(first, LanguageTransformer):
        first.tf32 |= spec.precision is Precision.TF32
        first.compiled |= spec.backend == COMPILED
    if spec.llm or isinstance(first, LanguageTransformer):
        limit = find_limit(first.model) if isinstance(first, LanguageTransformer) else None
        first.max_seq_length = min(filter(None, (spec.max_tokens, first.max_seq_length, limit)), default=512)
    if isinstance(first, LanguageTransformer) and not spec.llm:
        below = _below(resolved)
        first.base = first.base or {
            "model": spec.model if below is resolved else below.path_or_id,
            "revision": below.revision,
            "fingerprint": below.fingerprint,
            "dtype": str(spec.dtype),
        }
        first.pool_special_tokens = spec.special_tokens
        if first.tokenizer.pad_token is None:  # as in many decoder-only checkpoints; it is masked, so any token will do
            first.tokenizer.pad_token = first.tokenizer.eos_token or first.tokenizer.unk_token


def _with_graph(resolved: ResolvedModel, spec: BackboneSpec) -> ResolvedModel:
    """The same model; for a graph on the hub, a directory in the hub's cache with the graph, without weights."""
    if resolved.source != "hub" or not spec.graph:
        return resolved
    from huggingface_hub import snapshot_download

    wanted = ["*.json", "*.jinja", "*.model", "*.txt", "[0-9]_*/*", f"{spec.graph.rpartition('.')[0]}.*"]
    model, commit, away = resolved.path_or_id, resolved.revision, assets.hub_is_away()
    folder = snapshot_download(model, revision=commit, allow_patterns=wanted, local_files_only=away)
    return assets.ResolvedModel(folder, None, resolved.fingerprint, "local")


def _below(resolved: ResolvedModel) -> ResolvedModel:
    """The base of an adapter's directory; any other model itself."""
    files = resolved.files
    if not files.has("adapter_config.json") or files.has("config.json"):
        return resolved
    return files.bases.get("adapter_config.json") or assets.resolve_base(files)


def named_prompts(
    prompts: Mapping[str, str | None], default: str | None, fitted: Collection[str] | None = None
) -> dict[str, str]:
    """A model's prompts by name without empty ones, and its default one as ``default``.

    sentence-transformers gives queries and documents an empty prompt if a model names none. The empty prompt stays, in
    place of the default one, if that is the prompt of another role, or if ``fitted`` has the empty prompt.
    """
    chosen, roles = prompts.get(default or ""), {"query", "document", "passage"}
    kept = roles if chosen and (default in roles or "" in (fitted or ())) else ()
    named = {"default": chosen, **prompts}
    if not any(map(is_canonical, prompts)):  # else it serves the other languages
        named["default"] = chosen
    return {key: text for key, text in named.items() if text or (text is not None and key in kept)}


def text_prompts(
    prompts: Mapping[str, str], sides: Collection[str] = (), names: Collection[str] | None = None
) -> tuple[str, ...]:
    """The distinct prompts that a backbone's texts may have, or the named ones; the default one comes first.

    A prompt carries its side if the backbone encodes sides differently. Prompts by language count as one, because each
    language has one.
    """
    if prompt_languages(prompts) is not None:
        return ("",)
    texts = {"default": "", **{key: text for key, text in prompts.items() if not is_canonical(key)}}
    of_side = {"query": texts.get("query"), "document": texts.get("document", texts.get("passage"))}
    known = texts | {side: with_side(side, of_side[side] or texts["default"]) for side in sorted(sides)}
    return tuple(dict.fromkeys(known[key] for key in (known if names is None else names) if key in known))


def prompt_in(prompts: Mapping[str, str], language: str, prompt: str | None = None) -> str:
    """The prompt of a language's texts under a role's prompt or, by default, without a task, as for fit text.

    Raises:
        LanguageError: The prompts are by language, and this language has none.
    """
    languages = prompt_languages(prompts)
    if languages is not None and language not in languages:
        raise LanguageError(
            f"There is no prompt in {language}; there is one in {', '.join(sorted(languages))}. "
            "The English one (en-prompts) works for every language."
        )
    role = prompts.get("default", "") if prompt is None else prompt
    side, plain = split_side(role)
    return with_side(side, prompts.get(language, plain))


def prompts_by_language(prompts: Mapping[str, str]) -> dict[str, str]:
    """The prompts whose names are canonical language codes."""
    return {key: text for key, text in prompts.items() if is_canonical(key)}


def prompt_languages(prompts: Mapping[str, str]) -> frozenset[str] | None:
    """The languages with their own prompt; None if a text's language does not matter or every language is served."""
    codes = frozenset(prompts_by_language(prompts))
    return codes if codes and "default" not in prompts else None
