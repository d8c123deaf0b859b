"""Writes the maps of a model for services without xalign: as files for numpy, or as an ONNX graph."""

import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save

from xalign_models.errors import LanguageError, ModelError
from xalign_models.languages import BEYOND_FLORES, FLORES_200, spellings
from xalign_models.models.maps import Maps
from xalign_models.paths import atomic_directory, atomic_file
from xalign_models.portable import apply_map

_GRAPH = """
maps (float[n, {dim}] embedding, int64[n] map) => (float[n, {dim}] vector) {{
    one = Constant <value_ints = [1]> ()
    {product}
    b = Gather (shift, map)
    y = Add (xW, b)
    {normalise}
}}
"""
_PRODUCT = """row = Unsqueeze (embedding, one)
    W = Gather (weight, map)
    rows = MatMul (row, W)
    xW = Squeeze (rows, one)"""
_NORMALISE = """length = ReduceL2 (y, one)
    least = Constant <value_float = 1e-12> ()
    safe = Max (length, least)
    vector = Div (y, safe)"""


def settings(maps: Maps) -> dict[str, Any]:
    """The settings of a model's maps; ``languages`` has the usual codes, including languages served by a relative."""
    found = dict(maps.settings)
    if found["languages"] is not None:
        found["languages"] = dict(found["languages"])
        for code in (*FLORES_200, *BEYOND_FLORES):
            for form in (code, code[:3], *sorted(spellings(code))):
                with suppress(LanguageError):
                    if len(places := maps.places(form)) == 1:
                        found["languages"].setdefault(form, places[0])
    return found


def export_numpy(maps: Maps, directory: str | Path) -> None:
    """Write ``map.json``, ``map.safetensors`` and ``apply_map.py``, which needs numpy and safetensors alone.

    Raises:
        ModelError: The directory contains something other than maps.
        OSError: The directory cannot be written.
    """
    arrays = {name: np.ascontiguousarray(stack.numpy()) for name, stack in maps.aligned.state_dict().items()}
    with atomic_directory(Path(directory), "map.json") as folder:
        (folder / "map.safetensors").write_bytes(save(arrays))  # `save_file` makes private files
        shutil.copyfile(apply_map.__file__, folder / "apply_map.py")
        content = {**settings(maps), "files": ["apply_map.py", "map.json", "map.safetensors"]}
        text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        (folder / "map.json").write_text(text, encoding="utf-8")


def export_onnx(maps: Maps, path: str | Path) -> None:
    """Write an ONNX graph: ``vector`` (n, d) = ``embedding`` (n, d) by the maps with the numbers ``map`` (n,).

    The metadata's ``settings`` is JSON as in ``map.json``: a map's number is ``prompts[prompt] + languages[language]``.
    For each prompt, ``means`` has the number of the mean of its maps; ``identity`` is the number of no map.

    Raises:
        AlignmentError: The maps are not affine.
        ModelError: There is another file at the path.
        ModuleNotFoundError: The package onnx is not installed.
        OSError: The file cannot be written.
    """
    from onnx import ModelProto, helper, load, numpy_helper
    from onnx.parser import parse_graph

    earlier: set[str] = set()
    if os.path.lexists(path):
        with suppress(Exception):  # protobuf has errors of many kinds
            earlier = {entry.key for entry in load(path, load_external_data=False).metadata_props}
        if "settings" not in earlier:
            raise ModelError(f"{path} exists and is not a graph that xalign wrote; choose another file.")
    aligned, found = maps.aligned, settings(maps)
    count = len(set((found["languages"] or {"": 0}).values()))
    total = max(found["prompts"].values(), default=0) + count
    firsts = [*range(0, total, count)]
    dense = [aligned.dense(number) for number in (*range(total), *(total + first for first in firsts))]
    eye = torch.eye(aligned.dim)
    dense.append((eye, torch.zeros(aligned.dim)))
    found["means"] = {prompt: total + first // count for prompt, first in (found["prompts"] or {"": 0}).items()}
    found["identity"] = len(dense) - 1
    weights, shifts = (torch.stack(part).numpy() for part in zip(*dense, strict=True))
    multiplies = bool((weights != eye.numpy()).any())
    graph = parse_graph(
        _GRAPH.format(
            dim=aligned.dim,
            product=_PRODUCT if multiplies else "xW = Identity (embedding)",
            normalise=_NORMALISE if found["normalise"] else "vector = Identity (y)",
        )
    )
    graph.initializer.append(numpy_helper.from_array(shifts, "shift"))
    if multiplies:
        graph.initializer.append(numpy_helper.from_array(weights, "weight"))
    model: ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    helper.set_model_props(model, {"settings": json.dumps(found, ensure_ascii=False)})
    with atomic_file(Path(path)) as temporary:
        temporary.write_bytes(model.SerializeToString())
