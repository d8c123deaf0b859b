r"""Decides which files of a model directory may be loaded: weights, texts and settings, never code.

Libraries import classes named in configurations, such as ``modules.json`` and ``auto_map``. Therefore every
configuration is parsed (an escape such as ``auto\u005fmap`` is the same key), and names that are not listed here are
refused before anything is loaded, unless the BackboneSpec sets ``trust_remote_code``.
"""

import math
import pkgutil
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from xalign_models import assets, plugins
from xalign_models.assets.inspection import Inspected
from xalign_models.backbones.tokenizing import check_tokenizer
from xalign_models.builtin import MODULE_TYPES
from xalign_models.errors import ModelError, NeedsPluginError

_PUBLISHED = {
    "Transformer": "base.modules.transformer",
    "Dense": "base.modules.dense",
    "Normalize": "base.modules.normalize",
    "Pooling": "sentence_transformer.modules.pooling",
    "Router": "base.modules.router",
    "Asym": "base.modules.router",
    "Dropout": "sentence_transformer.modules.dropout",
    "LayerNorm": "sentence_transformer.modules.layer_norm",
    "StaticEmbedding": "sentence_transformer.modules.static_embedding",
    "WeightedLayerPooling": "sentence_transformer.modules.weighted_layer_pooling",
}
_ACROSS_TOKENS = re.compile(r"sentence_transformers\..*\b(CNN|LSTM)")
_ADOPTED = {
    "Transformer": "xalign_models.backbones.transformer:CheckedTransformer",
    "Router": "xalign_models.backbones.router:LanguageRouter",
    "Asym": "xalign_models.backbones.router:LanguageRouter",
    "StaticEmbedding": "xalign_models.backbones.static:LanguageStatic",
}
"""xalign's modules that replace sentence-transformers' own."""


def _paths(name: str, module: str) -> Iterator[str]:
    """Import paths of a class in the releases of sentence-transformers."""
    root = "sentence_transformers"
    package = module.rpartition(".")[0]
    yield from (f"{root}.models.{name}", f"{root}.models.{name}.{name}", f"{root}.{module}.{name}")
    yield from (f"{root}.{package}.{name}", f"{root}.sentence_transformer.modules.{name}")


MODULES: dict[str, str] = {
    **{
        path: _ADOPTED.get(name, f"sentence_transformers.{module}:{name}")
        for name, module in _PUBLISHED.items()
        for path in _paths(name, module)
    },
    **{path: ":".join(path.rsplit(".", 1)) for path in MODULE_TYPES},
}
"""Type in ``modules.json`` -> the class that is loaded for it, ``module:attribute``; plug-ins add theirs."""

_ACTIVATIONS = [  # not a set, because a model may name a list, which is not hashable
    f"torch.nn.{package}{name}"
    for package in ("", "modules.activation.", "modules.linear.")
    for name in "ELU GELU Hardtanh Identity LeakyReLU Mish ReLU ReLU6 SELU SiLU Sigmoid Softplus Softsign Tanh".split()
]
_ATTENTION = {"eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_3", "grouped_mm", "batched_mm"}
_ATTENTION_KEYS = {"attn_implementation", "_attn_implementation", "_attn_implementation_internal",
                   "experts_implementation", "_experts_implementation"}  # fmt: skip
_CODE_KEYS = {"allow_all_kernels", "auto_map", "auto_mapping", "custom_generate", "custom_pipelines", "kernel_config",
              "megatron_config", "trust_remote_code", "use_kernels"}  # fmt: skip
_CODE = {".dll", ".dylib", ".py", ".pyc", ".pyd", ".pyw", ".so"}
_NEVER = {".dill", ".joblib", ".pickle", ".pkl"}
_PICKLES = {".bin", ".ckpt", ".pt", ".pth", *_NEVER}
_TRANSFORMER_KEYS = {
    "base", "compiled", "default_lang", "do_lower_case", "document_length", "graph", "int8", "max_seq_length",
    "modality_config", "module_output_name", "pool_special_tokens", "processing_kwargs", "prompts", "query_expansion",
    "query_length", "tf32", "tokenizer_name_or_path", "transformer_task", "unpad_inputs",
}  # fmt: skip
_KWARGS = {"model_args", "model_kwargs", "tokenizer_args", "processor_kwargs", "config_args", "config_kwargs"}
_KWARG_KEYS = set(
    "add_pooling_layer attn_implementation do_lower_case dtype fix_mistral_regex model_max_length padding_side "
    "torch_dtype truncation_side use_cache use_fast".split()
)
_CONFIGURED = (":Dense", ":Dropout", ":LayerNorm", ":Pooling", ":WeightedLayerPooling")
_FLOATING = ("Aligned", ":Dense", ":LayerNorm", ":WeightedLayerPooling")
_NAME_KEYS = ("target_modules", "exclude_modules", "layers_pattern", "modules_to_save", "target_parameters")
_PATTERN_KEYS = ("rank_pattern", "alpha_pattern")
_MODULE = re.compile(r"\^?([\w-]|\\?\.)+\$?")
"""Names of modules in an adapter: peft uses them as regular expressions, which might never finish."""
_PATTERNS = {"all-linear", r"(.*\.)?pooler\..*"}
"""A keyword of peft, and the pattern in adapters that xalign trains."""
_METHOD = re.compile(r"forward|get_[a-z]+_features")
_QUANTISED = [None, "awq", "bitsandbytes", "compressed-tensors", "gptq", "hqq", "quanto", "torchao"]
"""Quantisation methods whose code is in packages that the user installs; other methods fetch kernels."""
_TRUST = "--trust-remote-code MODEL (in Python trust_remote_code=MODEL)"
_UNCHECKED = f"; or, if you trust its author, add {_TRUST}"
_COUNTS = {
    re.compile(r"layers?$|(^|_)(attention_types|blocks?|depths?|experts|groups?|group_num|heads?|stages?)$"): 1_000,
    re.compile(r"(^|_)(labels|langs)$"): 1_000_000,
    re.compile(r"^(r|rank|rank_pattern)$"): 1_024,
}
"""Fields of a configuration that count parts of a model, and their limits: every part needs memory."""


def check(model: Inspected, *, trust: bool = False, above: frozenset[Path] = frozenset()) -> None:
    """Refuse a model that names code, has weights in formats other than safetensors, or has damaged files.

    Args:
        model: The model's files; for a model on the hub, the configurations.
        trust: Whether the user trusts the model's own code; this does not cover an adapter's base.
        above: The directories of adapters that name this one as their base.

    Raises:
        ModelError: The model may not be loaded; the message gives the reason.
        AssetError: The base of an adapter is unavailable.
    """
    parsed, _ = model.parsed, model.headers  # damaged files are refused first
    if model.has_weights:
        _check_formats(model, trust)
    for name, settings in parsed.items():
        where = f"{model.label}: {name}"
        if PurePosixPath(name).name == "adapter_config.json":
            _check_adapter(settings, where)
        if name.endswith(".index.json"):
            _check_index(model, name, settings, where)
        elif not trust:
            _check_code(settings, model.label, where)
            if re.fullmatch(r"sentence_[\w-]+_config\.json", PurePosixPath(name).name):
                _check_transformer(settings, where)
    if "modules.json" in model.names:
        _check_modules(model, trust)
    if "adapter_config.json" in model.names:
        base = _base(model)
        if (place := base.directory.resolve()) in above:
            raise ModelError(f"{model.label}: adapters name each other as their base.")
        check(base, above=above | {place})  # trust in an adapter is not trust in its base
    for name, parts in () if trust else model.tokenizers.items():
        check_tokenizer(parts, f"{model.label}: {name}")


def module_classes(model: Inspected) -> dict[str, type]:
    """The classes for the types in ``modules.json``; unknown types are left out."""
    types = {entry["type"] for entry in _all_modules(model)}
    classes = {kind: pkgutil.resolve_name(MODULES[kind]) for kind in sorted(types & MODULES.keys())}
    return classes | {kind: plugins.MODULES[kind] for kind in sorted(types - MODULES.keys()) if kind in plugins.MODULES}


def plugin_code(model: Inspected) -> list[str]:
    """Code digests of the classes that come from plug-ins."""
    kinds = sorted({entry["type"] for entry in _all_modules(model)})
    return [code for kind in kinds if kind in plugins.MODULES and (code := plugins.code_digest(plugins.MODULES[kind]))]


def folders_of_maps(model: Inspected) -> list[str]:
    """Folders of the modules whose weights are floating point: dense layers and the like, and alignments."""
    return [entry["path"] for entry in _all_modules(model) if MODULES.get(entry["type"], "").endswith(_FLOATING)]


def folder_of_maps(files: Inspected) -> str | None:
    """The folder of a saved model's alignment, without other modules; None if there is no such folder."""
    entries = _readable(files)
    folders = [PurePosixPath(entry["path"]) for entry in entries]
    for entry, folder in zip(entries, folders, strict=True):
        alone = sum(other.is_relative_to(folder) for other in folders) == 1
        if alone and MODULES.get(entry["type"], "").endswith("Aligned"):
            return folder.as_posix()
    return None


def has_own_modules(files: Inspected) -> bool:
    """Whether files are a sentence-transformers model with modules of xalign, as written by ``save``."""
    types = [entry["type"] for entry in _readable(files)]
    return any(kind in plugins.MODULES or kind in MODULE_TYPES for kind in types)


def _readable(files: Inspected) -> list[dict[str, Any]]:
    with suppress(ModelError):  # loading the model reports the damage
        return _modules(files)
    return []


def _check_formats(model: Inspected, trust: bool) -> None:
    for name in sorted(model.names):
        suffix = PurePosixPath(name.lower()).suffix
        if suffix in _CODE and not trust:
            raise ModelError(_code(model.label, f"the file {name}"))
        if suffix in _PICKLES and _is_read(model, PurePosixPath(name)):
            raise ModelError(f"{model.label} has pickled weights ({name}), which can run code; save it as safetensors.")


def _is_read(model: Inspected, name: PurePosixPath) -> bool:
    """Whether a loader would open a pickle: it has the name of weights, and there are no safetensors next to it."""
    if name.suffix == ".bin" and name.name.startswith("openvino") and str(name.with_suffix(".xml")) in model.names:
        return False
    stem = re.split(r"[-.]", name.name.removeprefix("pytorch_"), maxsplit=1)[0]
    same = (f"{stem}.safetensors", f"{stem}.safetensors.index.json")
    return name.suffix in _NEVER or (
        "model" in stem and not any(str(name.with_name(file)) in model.names for file in same)
    )


def _check_code(settings: Any, label: str, where: str) -> None:
    """Visit each part once, with limits from the keys above it: a number's ``most``, and whether it is an attention."""
    pending: list[tuple[str, Any, float, bool]] = [("", settings, math.inf, False)]
    while pending:
        name, part, most, attention = pending.pop()
        if isinstance(part, list):
            pending += ((name, inner, most, attention) for inner in part)
        elif isinstance(part, Mapping):
            for key, value in part.items():
                _check_field(key, value, label, where)
                least = min([most, *(limit for counted, limit in _COUNTS.items() if counted.search(key))])
                pending.append((key if least < most else name, value, least, attention or key in _ATTENTION_KEYS))
        elif attention and part is not None and part not in _ATTENTION:
            raise ModelError(_code(label, f"{where} names the attention {part!r}, which is not built in"))
        elif isinstance(part, int) and part > most:
            raise ModelError(f"{where} sets {name} to more than {most:,}.")


def _check_field(key: str, value: Any, label: str, where: str) -> None:
    if (value and key in _CODE_KEYS) or (key == "megatron_core" and value not in [None, "megatron.core"]):
        raise ModelError(_code(label, f"{where} names it under {key}"))
    if key == "architectures" and not (isinstance(value or [], list) and all(isinstance(n, str) for n in value or [])):
        raise ModelError(f"{where} is damaged: architectures is not a list of names; get the file again.")
    if key == "activation_function" and "." in str(value) and value not in _ACTIVATIONS:
        if str(value).startswith("torch.nn."):
            raise ModelError(_unsupported(where, f"the activation function {value}"))
        raise ModelError(_code(label, f"{where} names {value!r} as an {key}"))
    if key == "quantization_config" and value and _method_of(value) not in _QUANTISED:
        raise ModelError(_unsupported(where, f"weights quantised by {_method_of(value)!r}", _UNCHECKED))


def _method_of(quantisation: Any) -> Any:
    return quantisation.get("quant_method") if isinstance(quantisation, Mapping) else "?"


def _check_index(model: Inspected, name: str, settings: dict[str, Any], where: str) -> None:
    shards = settings.get("weight_map")
    if not isinstance(shards, Mapping):
        raise ModelError(f"{where} is damaged: it has no weight_map.")
    for shard in {*map(str, shards.values())}:
        if PurePosixPath(shard).name != shard or not shard.endswith((".safetensors", ".bin")):
            raise ModelError(f"{where} names {shard!r}, which is not a file of weights in the same folder.")
        is_there = str(PurePosixPath(name).with_name(shard)) in model.names
        if shard.endswith(".safetensors") and not is_there and "snapshots" not in model.directory.parts:
            raise ModelError(f"{where} names {shard}, which is missing.")


def _check_transformer(settings: dict[str, Any], where: str) -> None:
    for key, value in settings.items():
        if key in _KWARGS:
            if unknown := sorted(value.keys() - _KWARG_KEYS if isinstance(value, Mapping) else [value], key=str):
                raise ModelError(f"{where}: {key} has {unknown[0]!r}, which a checkpoint may not set.")
        elif key not in _TRANSFORMER_KEYS:
            raise ModelError(f"{where}: {key!r} is not a setting of a transformer module.")
    longest = settings.get("max_seq_length")
    if longest is not None and (type(longest) is not int or not 1 < longest < 2**31):
        raise ModelError(f"{where}: max_seq_length {str(longest)[:40]} is not a number of at least 2 tokens.")
    if settings.get("tokenizer_name_or_path"):
        raise ModelError(f"{where}: the tokenizer is outside the directory; copy its files into it.")
    if (graph := settings.get("graph")) is not None and not (isinstance(graph, str) and _is_below(graph)):
        raise ModelError(f"{where}: graph names a file outside of the directory ({str(graph)[:80]!r}).")
    modalities = settings.get("modality_config", {})
    for options in modalities.values() if isinstance(modalities, Mapping) else ("?",):
        if not isinstance(options, Mapping) or not _METHOD.fullmatch(str(options.get("method"))):
            raise ModelError(f"{where}: modality_config names an unknown model method.")


def _modules(model: Inspected) -> list[dict[str, Any]]:
    """The entries of ``modules.json``; empty if there is no such file."""
    entries: list[dict[str, Any]] = model.parsed.get("modules.json", [])
    for entry in entries:
        if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("name", "path", "type")):
            raise ModelError(f"{model.label}: modules.json is damaged: each module needs a name, a path and a type.")
    return entries


def _all_modules(model: Inspected) -> Iterator[dict[str, str]]:
    """The modules in ``modules.json``, and after each Router the modules of its routes."""
    for entry in _modules(model):
        yield entry
        if _is_router(entry["type"]):
            types = _types(model, entry["path"])
            if not types or any(map(_is_router, types.values())):
                raise ModelError(_code(model.label, f"the routes of module {entry['name']} have no known modules"))
            for name, kind in types.items():
                yield {"name": name, "path": (PurePosixPath(entry["path"]) / name).as_posix(), "type": kind}


def _types(model: Inspected, folder: str) -> dict[str, str]:
    """A Router's module types by name, from the file that sentence-transformers would read."""
    for name in ("router_config.json", "config.json"):
        if settings := model.parsed.get((PurePosixPath(folder) / name).as_posix()):
            types = settings.get("types")
            return types if isinstance(types, dict) and {type(kind) for kind in types.values()} == {str} else {}
    return {}


def _is_router(kind: str) -> bool:
    return MODULES.get(kind, "").endswith(":LanguageRouter")


def routers(model: Inspected) -> dict[str, set[str]]:
    """Folder of each Router in ``modules.json`` -> the types of its modules; empty for most models.

    Raises:
        ModelError: The file is damaged.
    """
    folders = [entry["path"] for entry in _modules(model) if _is_router(entry["type"])]
    return {folder: {*_types(model, folder).values()} for folder in folders}


def _check_modules(model: Inspected, trust: bool) -> None:
    entries, label = _modules(model), model.label
    if not entries or len({entry["name"] for entry in entries}) < len(entries):
        raise ModelError(f"{label}: modules.json has no module, or two with the same name.")
    for entry in _all_modules(model):
        kind, config = entry["type"], (PurePosixPath(entry["path"]) / "config.json").as_posix()
        if not _is_below(entry["path"]):
            raise ModelError(f"{label}: modules.json names a folder outside of it ({entry['path']!r}).")
        if _ACROSS_TOKENS.fullmatch(kind):
            raise ModelError(
                f"{label} has a CNN or an LSTM, which xalign does not use: a text's vector would depend on other texts "
                "in the batch. Choose another model."
            )
        known = kind in MODULES or kind in plugins.MODULES
        if not known and not trust:
            if kind.startswith(f"{plugins.PACKAGE}."):
                file = f"{kind.split('.')[1]}.py"
                raise NeedsPluginError(
                    f"{label} needs a plug-in that is not loaded: name its file, {file}, with --plugin."
                )
            if kind.startswith("sentence_transformers."):
                raise ModelError(_unsupported(label, f"the module {kind}", _UNCHECKED))
            raise ModelError(_code(label, f"modules.json names {kind!r}, which is not a known module"))
        if MODULES.get(kind, "").endswith(_CONFIGURED) and config not in model.names:
            raise ModelError(f"{label}: {config} is missing, which modules.json needs; get the files again.")
        if MODULES.get(kind, "").endswith(":Dense"):
            activation = model.parsed.get(config, {}).get("activation_function")
            if activation is not None and activation not in _ACTIVATIONS:
                raise ModelError(_unsupported(f"{label}: {config}", f"the activation function {activation!r}"))
    _check_settings(model.parsed.get("config_sentence_transformers.json", {}), label)


def _check_settings(settings: Mapping[str, Any], label: str) -> None:
    if (kind := settings.get("model_type", "SentenceTransformer")) != "SentenceTransformer":
        raise ModelError(f"{label} is a {str(kind)[:40]}, not a SentenceTransformer.")
    where = f"{label}: config_sentence_transformers.json is damaged"
    dim = settings.get("truncate_dim")
    if dim is not None and (type(dim) is not int or dim < 1):
        raise ModelError(f"{where}: truncate_dim {str(dim)[:40]} is not a number of at least 1.")
    prompts = settings.get("prompts") or {}
    if not isinstance(prompts, Mapping) or not all(isinstance(text, str) for text in prompts.values()):
        raise ModelError(f"{where}: prompts are not texts by name.")


def _is_below(path: str) -> bool:
    parts = PurePosixPath(path)
    return not (parts.is_absolute() or ".." in parts.parts or "\\" in path or ":" in path)


def _check_adapter(settings: dict[str, Any], where: str) -> None:
    for value in map(settings.get, (*_NAME_KEYS, *_PATTERN_KEYS)):
        for name in value if isinstance(value, list | Mapping) else [value]:
            if name is not None and not (isinstance(name, str) and (name in _PATTERNS or _MODULE.fullmatch(name))):
                raise ModelError(f"{where} has the pattern {str(name)[:80]!r}; list names of modules.")


def _base(model: Inspected) -> Inspected:
    settings = model.parsed["adapter_config.json"]
    base = settings.get("base_model_name_or_path")
    if not isinstance(base, str) or not base or settings.get("peft_type") != "LORA":
        raise ModelError(f"{model.label}: adapter_config.json names no base, or is not an adapter of LoRA.")
    if "config.json" in model.names:
        raise ModelError(f"{model.label} has both a model and an adapter; give the adapter its own directory.")
    return assets.resolve_base(model).files


def _code(label: str, reason: str) -> str:
    return (
        f"{label} has its own code: {reason}. xalign does not run it. If you trust its author, add {_TRUST}, "
        "which covers this model, not its adapters."
    )


def _unsupported(label: str, part: str, remedy: str = "") -> str:
    return f"{label} uses {part}, which xalign does not support. Choose another model{remedy}."
