r"""The one place that decides what a model directory may load: weights, texts and settings, never code.

Both libraries that open checkpoints import what a configuration names: sentence-transformers the classes in
``modules.json``, transformers those of ``auto_map``, peft and the kernels package others. So each configuration is
parsed (an escape such as ``auto\u005fmap`` is the same key), and what is not on a list here is refused before anything
is loaded. ``trust_remote_code`` of a BackboneSpec is the user's word that code may run.
"""

from __future__ import annotations

import os
import pkgutil
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from xalign_models import assets, plugins
from xalign_models.builtin import MODULE_TYPES
from xalign_models.errors import AssetError, FileError, ModelError, one_line
from xalign_models.files import parse_json, read_json, safetensors_header, walk

if TYPE_CHECKING:
    from xalign_models.assets import ResolvedModel

_PUBLISHED = {
    "Transformer": "base.modules.transformer",
    "Dense": "base.modules.dense",
    "Normalize": "base.modules.normalize",
    "Pooling": "sentence_transformer.modules.pooling",
    "Router": "base.modules.router",
    "Asym": "base.modules.router",
    "Dropout": "sentence_transformer.modules.dropout",
    "LayerNorm": "sentence_transformer.modules.layer_norm",
    "CNN": "sentence_transformer.modules.cnn",
    "LSTM": "sentence_transformer.modules.lstm",
    "StaticEmbedding": "sentence_transformer.modules.static_embedding",
    "WeightedLayerPooling": "sentence_transformer.modules.weighted_layer_pooling",
}
_ADOPTED = {
    "Transformer": "xalign_models.backbones.transformer:CheckedTransformer",
    "Router": "xalign_models.backbones.router:LanguageRouter",
    "Asym": "xalign_models.backbones.router:LanguageRouter",
    "StaticEmbedding": "xalign_models.backbones.static:LanguageStatic",
}
"""Ours in place of sentence-transformers' own."""
_OURS = (*MODULE_TYPES,)


def _paths(name: str, module: str) -> Iterator[str]:
    """The ways in which versions of sentence-transformers write a class."""
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
    **{path: ":".join(path.rsplit(".", 1)) for path in _OURS},
}
"""What ``modules.json`` may name -> the class that is handed over for it, ``module:attribute``; plug-ins have more."""

_ACTIVATIONS = {
    f"torch.nn.{package}{name}"
    for package in ("", "modules.activation.", "modules.linear.")
    for name in "ELU GELU Hardtanh Identity LeakyReLU Mish ReLU ReLU6 SELU SiLU Sigmoid Softplus Softsign Tanh".split()
}
_ATTENTION = {"eager", "sdpa", "flex_attention", "flash_attention_2", "flash_attention_3", "grouped_mm", "batched_mm"}
_ATTENTION_KEYS = {
    "attn_implementation",
    "_attn_implementation",
    "_attn_implementation_internal",
    "experts_implementation",
    "_experts_implementation",
}
_CODE_KEYS = {"allow_all_kernels", "auto_map", "auto_mapping", "custom_generate", "custom_pipelines", "kernel_config",
              "megatron_config", "trust_remote_code", "use_kernels"}  # fmt: skip
_CODE = {".dll", ".dylib", ".py", ".pyc", ".pyd", ".pyw", ".so"}
_NEVER = {".dill", ".joblib", ".pickle", ".pkl"}
_PICKLES = {".bin", ".ckpt", ".pt", ".pth", *_NEVER}
_SETTINGS = re.compile(r".*config.*\.json|.*\.index\.json|(modules|special_tokens_map|chat_template)\.json")
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
_FLOATING = (":Aligned", ":CNN", ":Dense", ":LSTM", ":LayerNorm", ":WeightedLayerPooling")
_METHOD = re.compile(r"forward|get_[a-z]+_features")
_QUANTISED = {None, "awq", "bitsandbytes", "compressed-tensors", "gptq", "hqq", "quanto", "torchao"}
"""Ways of quantising whose code is in packages that the user installs; others fetch kernels, or are unknown."""
_COUNTS = {
    re.compile(r"layers?$|(^|_)(attention_types|blocks?|depths?|experts|groups?|group_num|heads?|stages?)$"): 1_000,
    re.compile(r"(^|_)(labels|langs)$"): 1_000_000,
}
"""Fields of a configuration that say how many parts a model is built of, each of which takes memory, and the most."""
_MOST_FILES = 10_000
_MOST_SETTINGS = 16 << 20


def check(resolved: ResolvedModel, *, trust: bool = False) -> None:
    """Refuse a model that names code, has weights in other forms than safetensors, or has damaged files.

    Args:
        resolved: A directory or a hub id; of a hub id the configurations are fetched, and nothing else.
        trust: The user's word that the model may run its own code.

    Raises:
        ModelError: The model may not be loaded; the message says what is in the way.
        AssetError: The configurations cannot be fetched.
    """
    if resolved.source == "hub":
        _check_settings(_snapshot(resolved), resolved.path_or_id, trust, frozenset())
    else:
        check_directory(Path(resolved.path_or_id), trust=trust)


def check_directory(directory: Path, *, trust: bool = False) -> None:
    """:func:`check` of a local directory.

    Raises:
        ModelError: The model may not be loaded.
    """
    _check_directory(directory, trust, frozenset())


def module_classes(resolved: ResolvedModel) -> dict[str, type]:
    """The classes for the types that ``modules.json`` names; types not on our list are left out."""
    directory = _snapshot(resolved) if resolved.source == "hub" else Path(resolved.path_or_id)
    types = {entry["type"] for entry in _all_modules(directory)}
    classes = {kind: pkgutil.resolve_name(MODULES[kind]) for kind in sorted(types & MODULES.keys())}
    return classes | {kind: plugins.MODULES[kind] for kind in sorted(types - MODULES.keys()) if kind in plugins.MODULES}


def folders_of_maps(resolved: ResolvedModel) -> list[Path]:
    """Where the modules lie whose weights are floating point: dense layers and the like, and alignments."""
    directory = _snapshot(resolved) if resolved.source == "hub" else Path(resolved.path_or_id)
    return [
        directory / entry["path"]
        for entry in _all_modules(directory)
        if MODULES.get(entry["type"], "").endswith(_FLOATING)
    ]


def has_own_modules(directory: Path) -> bool:
    """Whether it is a sentence-transformers directory with modules of ours, as ``save`` writes it."""
    path = directory / "modules.json"
    if not path.is_file():
        return False
    try:
        return any(_is_own(entry["type"]) for entry in _modules(path))
    except ModelError:
        return False  # whoever opens it says what is wrong


def _is_own(kind: str) -> bool:
    return kind in plugins.MODULES or kind in _OURS


def _check_directory(directory: Path, trust: bool, above: frozenset[str]) -> None:
    files = list(_files(directory))
    for name in files:
        suffix = PurePosixPath(name.lower()).suffix
        if suffix in _CODE and not trust:
            raise ModelError(_code(str(directory), f"the file {name}"))
        if suffix in _PICKLES and _is_read(directory / name):
            raise ModelError(f"{directory} has pickled weights ({name}), which can run code; save it as safetensors.")
        if suffix == ".safetensors":
            try:
                safetensors_header(directory / name)
            except FileError as error:
                raise ModelError(str(error)) from None
    _check_settings(directory, str(directory), trust, above)


def _files(directory: Path) -> Iterator[str]:
    """Every file, relative; links have to stay within the directory, or within the hub's cache that it lies in."""
    root = directory.resolve()
    roots = [root, *([root.parents[1] / "blobs"] if root.parent.name == "snapshots" else [])]
    count = 0
    for folder, folders, names in os.walk(root):
        for name in (*folders, *names):
            path = Path(folder, name)
            if path.is_symlink() and not any(Path(os.path.realpath(path)).is_relative_to(root) for root in roots):
                raise ModelError(
                    f"{directory} has a link that leads out of it ({path.relative_to(root)}); copy the file."
                )
        for name in names:
            if not Path(folder, name).is_file():  # a pipe would be waited for, a device never ends
                raise ModelError(f"{directory} has {name}, which is no file.")
            count += 1
            if count > _MOST_FILES:
                raise ModelError(f"{directory} has more than {_MOST_FILES:,} files; give the model's own directory.")
            yield Path(folder, name).relative_to(root).as_posix()


def _is_read(path: Path) -> bool:
    """Whether a loader would open a pickle: it is named like weights, and they do not lie beside it as safetensors.

    The weights of an OpenVINO graph are named like a pickle and are none.
    """
    if path.suffix == ".bin" and path.name.startswith("openvino") and path.with_suffix(".xml").is_file():
        return False
    stem = re.split(r"[-.]", path.name.removeprefix("pytorch_"), maxsplit=1)[0]
    same = (path.with_name(f"{stem}.safetensors"), path.with_name(f"{stem}.safetensors.index.json"))
    return path.suffix in _NEVER or ("model" in stem and not any(file.is_file() for file in same))


def _check_settings(directory: Path, label: str, trust: bool, above: frozenset[str]) -> None:
    for path in sorted(directory.rglob("*")):
        if not _SETTINGS.fullmatch(path.name) or not path.is_file():
            continue
        where = f"{label}: {path.relative_to(directory).as_posix()}"
        settings = _settings(path, where)
        if path.name.endswith(".index.json"):
            _check_index(path, settings, where)
        elif not trust:
            _check_code(settings, label, where)
            if re.fullmatch(r"sentence_[\w-]+_config\.json", path.name):
                _check_transformer(settings, where)
    if (directory / "modules.json").is_file():
        _check_modules(directory, label, trust)
    if (directory / "adapter_config.json").is_file():
        _check_adapter(directory, label, trust, above)


def _settings(path: Path, where: str) -> Any:
    try:
        with path.open("rb") as file:
            content = file.read(_MOST_SETTINGS + 1)
        if len(content) > _MOST_SETTINGS:
            raise ModelError(f"{where} is longer than any configuration.")
        return parse_json(content, where, (dict, list))
    except (FileError, OSError) as error:
        raise ModelError(str(error)) from None


def _check_code(settings: Any, label: str, where: str) -> None:
    for part in walk(settings):
        if not isinstance(part, Mapping):
            continue
        for key, value in part.items():
            if value and key in _CODE_KEYS:
                raise ModelError(_code(label, f"{where} names it under {key}"))
            if key == "activation_function" and "." in str(value) and value not in _ACTIVATIONS:
                raise ModelError(_code(label, f"{where} names {value!r} as an {key}"))
            if key == "quantization_config" and value and _method_of(value) not in _QUANTISED:
                raise ModelError(_code(label, f"{where} is quantised by {_method_of(value)!r}"))
            _check_count(key, value, where)
            if key == "megatron_core" and value not in {None, "megatron.core"}:
                raise ModelError(_code(label, f"{where} names it under {key}"))
            if key in _ATTENTION_KEYS:
                for choice in walk(list(value.values()) if isinstance(value, Mapping) else value):
                    if not (choice is None or isinstance(choice, list) or choice in _ATTENTION):
                        raise ModelError(_code(label, f"{where} names an attention {choice!r} that is none of ours"))


def _check_count(key: str, value: Any, where: str) -> None:
    for counted, most in _COUNTS.items():
        if counted.search(key) and any(isinstance(count, int) and count > most for count in walk(value)):
            raise ModelError(f"{where} has more than {most:,} as {key}.")


def _method_of(quantisation: Any) -> Any:
    return quantisation.get("quant_method") if isinstance(quantisation, Mapping) else "?"


def _check_index(path: Path, settings: Any, where: str) -> None:
    shards = settings.get("weight_map") if isinstance(settings, Mapping) else None
    if not isinstance(shards, Mapping):
        raise ModelError(f"{where} is damaged: it has no weight_map.")
    for shard in {*map(str, shards.values())}:
        if PurePosixPath(shard).name != shard or not shard.endswith((".safetensors", ".bin")):
            raise ModelError(f"{where} names {shard!r}, which is no file of weights beside it.")
        if shard.endswith(".safetensors") and not (path.parent / shard).is_file() and not _is_snapshot(path.parent):
            raise ModelError(f"{where} names {shard}, which is not there.")


def _is_snapshot(directory: Path) -> bool:
    return "snapshots" in directory.parts


def _check_transformer(settings: Any, where: str) -> None:
    if not isinstance(settings, Mapping):
        raise ModelError(f"{where} is damaged: an object was expected.")
    for key, value in settings.items():
        if key in _KWARGS:
            if unknown := sorted(value.keys() - _KWARG_KEYS if isinstance(value, Mapping) else [value], key=str):
                raise ModelError(f"{where}: {key} has {unknown[0]!r}, which a checkpoint may not set.")
        elif key not in _TRANSFORMER_KEYS:
            raise ModelError(f"{where}: {key!r} is no setting of a transformer module.")
    longest = settings.get("max_seq_length")
    if longest is not None and (type(longest) is not int or not 0 < longest < 2**31):
        raise ModelError(f"{where}: max_seq_length {str(longest)[:40]} is no number of tokens.")
    if settings.get("tokenizer_name_or_path"):
        raise ModelError(f"{where}: the tokenizer is to come from elsewhere; put its files into the directory.")
    if (graph := settings.get("graph")) is not None and not (isinstance(graph, str) and _is_below(graph)):
        raise ModelError(f"{where}: graph names a file outside of the directory ({str(graph)[:80]!r}).")
    modalities = settings.get("modality_config", {})
    for options in modalities.values() if isinstance(modalities, Mapping) else ("?",):
        if not isinstance(options, Mapping) or not _METHOD.fullmatch(str(options.get("method"))):
            raise ModelError(f"{where}: modality_config names a method that is none of a model's.")


def _modules(path: Path) -> list[dict[str, Any]]:
    try:
        entries = read_json(path, list, most=1 << 20)
    except FileError as error:
        raise ModelError(str(error)) from None
    for entry in entries:
        if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("name", "path", "type")):
            raise ModelError(f"{path} is damaged: each module needs a name, a path and a type.")
    return entries


def _all_modules(directory: Path) -> Iterator[dict[str, str]]:
    """The modules that ``modules.json`` names, and after each Router those that it names."""
    for entry in _modules(directory / "modules.json"):
        yield entry
        if is_router(entry["type"]):
            types = _types(directory / entry["path"])
            if not types or any(map(is_router, types.values())):
                raise ModelError(_code(str(directory), f"the routes of module {entry['name']} have no known modules"))
            for name, kind in types.items():
                yield {"name": name, "path": (PurePosixPath(entry["path"]) / name).as_posix(), "type": kind}


def _types(folder: Path) -> dict[str, str]:
    """What a Router names, where sentence-transformers looks for it: name to type."""
    for name in ("router_config.json", "config.json"):
        if (folder / name).is_file() and (settings := _settings(folder / name, f"{folder / name}")):
            types = settings.get("types") if isinstance(settings, Mapping) else None
            return types if isinstance(types, dict) and {type(kind) for kind in types.values()} == {str} else {}
    return {}


def is_router(kind: str) -> bool:
    """Whether a type of ``modules.json`` is a Router."""
    return MODULES.get(kind, "").endswith(":LanguageRouter")


def routers(modules: Path) -> dict[str, set[str]]:
    """Folder of each Router that a ``modules.json`` names to the types that it names; empty for most models.

    Raises:
        ModelError: The file is damaged.
    """
    folders = [entry["path"] for entry in _modules(modules) if is_router(entry["type"])]
    return {folder: {*_types(modules.parent / folder).values()} for folder in folders}


def _check_modules(directory: Path, label: str, trust: bool) -> None:
    entries = _modules(directory / "modules.json")
    if not entries or len({entry["name"] for entry in entries}) < len(entries):
        raise ModelError(f"{label}: modules.json names no module, or one twice.")
    for entry in _all_modules(directory):
        path = PurePosixPath(entry["path"])
        if not _is_below(entry["path"]):
            raise ModelError(f"{label}: modules.json names a folder outside of it ({entry['path']!r}).")
        known = entry["type"] in MODULES or entry["type"] in plugins.MODULES
        if not known and entry["type"].startswith("xalign_models."):
            raise ModelError(f"{label} was saved by an earlier version of xalign; fit or train it again.")
        if not known and not trust:
            if entry["type"].startswith(f"{plugins.PACKAGE}."):
                file = f"{entry['type'].split('.')[1]}.py"
                raise ModelError(f"{label} needs a plug-in that is not loaded: name its file, {file}, with --plugin.")
            raise ModelError(_code(label, f"modules.json names {entry['type']!r}, which is none of the known modules"))
        config = directory / path / "config.json"
        if MODULES.get(entry["type"], "").endswith(":Dense") and config.is_file():
            settings = _settings(config, f"{label}: {path / 'config.json'}")
            activation = settings.get("activation_function") if isinstance(settings, Mapping) else "?"
            if activation is not None and activation not in _ACTIVATIONS:
                raise ModelError(_code(label, f"{path / 'config.json'} names {activation!r} as an activation_function"))
    header = directory / "config_sentence_transformers.json"
    if header.is_file():
        settings = _settings(header, f"{label}: {header.name}")
        kind = settings.get("model_type", "SentenceTransformer") if isinstance(settings, Mapping) else "?"
        if kind != "SentenceTransformer":
            raise ModelError(f"{label} is a {kind}, not a SentenceTransformer.")


def _is_below(path: str) -> bool:
    parts = PurePosixPath(path)
    return not (parts.is_absolute() or ".." in parts.parts or "\\" in path or ":" in path)


def _check_adapter(directory: Path, label: str, trust: bool, above: frozenset[str]) -> None:
    settings = _settings(directory / "adapter_config.json", f"{label}: adapter_config.json")
    base = settings.get("base_model_name_or_path") if isinstance(settings, Mapping) else None
    if not isinstance(base, str) or not base or settings.get("peft_type") != "LORA":
        raise ModelError(f"{label}: adapter_config.json names no base, or is not of LoRA.")
    if (directory / "config.json").is_file():
        raise ModelError(f"{label} has both a model and an adapter; give the adapter its own directory.")
    resolved = assets.resolve(base)
    if resolved.path_or_id in above:
        raise ModelError(f"{label}: adapters name each other as their base.")
    above |= {resolved.path_or_id}
    if resolved.source == "hub":
        _check_settings(_snapshot(resolved), resolved.path_or_id, trust, above)
    else:
        _check_directory(Path(resolved.path_or_id), trust, above)


def _snapshot(resolved: ResolvedModel) -> Path:
    return _fetched(resolved.path_or_id, str(resolved.revision))


@lru_cache(maxsize=64)
def _fetched(model: str, commit: str) -> Path:
    """The configurations of a model on the hub, in its cache; a commit never changes."""
    from huggingface_hub import snapshot_download

    local = assets.hub_is_away()
    try:
        return Path(snapshot_download(model, revision=commit, allow_patterns=["*.json"], local_files_only=local))
    except Exception as error:
        raise AssetError(f"{model} cannot be had from the hub ({one_line(error)}).") from None


def _code(label: str, what: str) -> str:
    return (
        f"{label} brings code of its own: {what}. It is not run. If you trust its author, say --trust-remote-code "
        "(in Python trust_remote_code=True)."
    )
