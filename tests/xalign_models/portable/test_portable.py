"""Maps applied by numpy alone equal ``encode``, by language and prompt of each row, and need nothing else."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys

import numpy as np
import onnxruntime
import pytest
from safetensors.numpy import load_file, save_file

import xalign_models
from xalign_models.alignments import make
from xalign_models.errors import AlignmentError, FileError, LanguageError, ModelError
from xalign_models.models.api import set_language_handling
from xalign_models.models.building import build, load_encoder
from xalign_models.models.exporting import export_numpy, export_onnx
from xalign_models.models.maps import load_maps
from xalign_models.models.names import find_spec
from xalign_models.portable.apply_map import Map
from xalign_models.specs import AlignmentSpec, ModelSpec

PROMPTS = (("default", "w8 "), ("query", "w8 "), ("passage", "w9 w9 "))
TEXTS = ["w1 w2 w3 w4 w5", "w3", "w4 w5 w6", "w7 w1", "w2"]
CODES = ["de", "eng-Latn", "fra", "deu_Latn", "spa"]
ROLES = ["query", "passage", "w9 w9 ", None, "default"]
METHODS = ["centered", "lir", "procrustes", "lsar", "affine"]
FOREIGN = {"mteb", "onnxruntime", "pandas", "pyarrow", "pydantic", "scipy", "sentence_transformers", "sklearn", "torch"}


@pytest.fixture
def saved(workdir, tiny_model, write_text):
    """Saves a model whose maps are by language and prompt, and gives it with the raw vectors of ``TEXTS``."""
    text = write_text(workdir / "fit", 40, ("deu", "eng", "fra", "spa"))
    backbone = dataclasses.replace(find_spec(str(tiny_model)).backbone, prompts=PROMPTS)

    def make_model(method, unknown="error"):
        model = build(ModelSpec(backbone, AlignmentSpec(method, method, (), (f"own:{text}",)), "fit"), device="cpu")
        set_language_handling(model, None, unknown)
        xalign_models.save(model, "saved")
        prompts = [dict(PROMPTS).get(role or "default", role) for role in ROLES]
        return model, load_encoder(ModelSpec(backbone), device="cpu").raw.encode(TEXTS, prompts)

    return make_model


def encoded(model, codes=CODES):
    rows = zip(TEXTS, codes, ROLES, strict=True)
    prompts = {"w9 w9 ": "passage", None: "default"}
    return np.stack([model.encode([t], lang=c, prompt_name=prompts.get(r, r))[0] for t, c, r in rows])


@pytest.mark.slow
@pytest.mark.parametrize("method", [*METHODS, "langsae", "residual"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_numpy_equals_encode_row_by_row(saved, workdir, method):
    model, raw = saved(method)
    expected = encoded(model)
    np.testing.assert_allclose(xalign_models.load_map("saved").transform(raw, CODES, ROLES), expected, atol=1e-6)
    export_numpy(load_maps("saved"), "exported")
    for maps in (Map.load("exported"), xalign_models.load_map("exported")):
        np.testing.assert_allclose(maps.transform(raw, CODES, ROLES), expected, atol=1e-6)
        one = maps.transform(raw[:1].astype(np.float64), "deu", "query")
        assert one.dtype == np.float64
        np.testing.assert_allclose(one, expected[:1], atol=1e-6)


def test_the_exported_folder_needs_numpy_and_safetensors_alone(saved, workdir):
    model, raw = saved("procrustes")
    export_numpy(load_maps("saved"), "exported")
    shutil.copytree("exported", "service")
    np.save("raw.npy", raw)
    code = f"""
import sys, numpy as np
class Refuse:
    def find_spec(self, name, *rest):
        if name.split(".")[0] in {sorted(FOREIGN | {"xalign_models", "transformers", "langcodes"})!r}:
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
from service.apply_map import Map
np.save("mapped.npy", Map.load("service").transform(np.load("raw.npy"), {CODES!r}, {ROLES!r}))
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=workdir)
    np.testing.assert_allclose(np.load("mapped.npy"), encoded(model), atol=1e-6)
    assert len((workdir / "service" / "apply_map.py").read_text().splitlines()) < 100


def test_an_export_replaces_nothing_but_an_export(saved, workdir):
    saved("centered")
    for _ in range(2):
        export_numpy(load_maps("saved"), "exported")
    (workdir / "exported" / "notes.txt").write_text("mine")
    with pytest.raises(ModelError, match=r"did not write \(notes.txt\)"):
        export_numpy(load_maps("saved"), "exported")
    (workdir / "mine").mkdir()
    (workdir / "mine" / "thesis.txt").write_text("mine")
    with pytest.raises(ModelError, match="mine exists and holds no maps: it has other content"):
        export_numpy(load_maps("saved"), "mine")
    assert (workdir / "mine" / "thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("folder", ["saved", "exported"])
def test_load_map_is_quick_and_imports_no_large_package(saved, workdir, folder):
    saved("procrustes")
    export_numpy(load_maps("saved"), "exported")
    code = f"""
import json, sys, time
start = time.process_time()
import numpy, safetensors.numpy
begin = time.process_time()
import xalign_models
maps = xalign_models.load_map({folder!r})
maps.transform(numpy.ones((3, 16)), ["deu-Latn", "de", "eng-Latn"][:1] * 3, "query")
ratio = (time.process_time() - begin) / (begin - start)  # seconds would depend on the machine
print(json.dumps([ratio, sorted(sys.modules)]))
"""
    command = [sys.executable, "-c", code]
    runs = [json.loads(subprocess.run(command, check=True, cwd=workdir, capture_output=True).stdout) for _ in "123"]
    assert min(ratio for ratio, _ in runs) < 2
    modules = runs[0][1]
    assert not {name.split(".")[0] for name in modules} & (FOREIGN | {"transformers", "langcodes"})
    ours = {name.split(".")[1] for name in modules if name.startswith("xalign_models.")}
    assert ours <= {"builtin", "errors", "files", "linalg", "portable"}


@pytest.mark.parametrize("unknown", ["error", "mean", "related", "unaligned"])
def test_a_language_that_was_not_fitted_is_treated_as_in_the_model(saved, workdir, monkeypatch, unknown):
    from xalign_models import typology

    lines = {code: ["IE", "Germanic" if code in {"deu", "nld", "eng"} else "Romance"]
             for code in ("deu", "eng", "fra", "spa", "nld")}  # fmt: skip
    monkeypatch.setattr(typology, "load_uriel", lambda: {"families": lines, "syntax": dict.fromkeys(lines, "1")})
    typology.nearest.cache_clear()
    model, raw = saved("affine", unknown)
    codes = ["nl", "eng-Latn", "fin", "deu", "nld-Latn"]
    export_numpy(load_maps("saved"), "exported")
    three = [xalign_models.load_map("saved"), xalign_models.load_map("exported"), Map.load("exported")]
    if unknown == "error":
        for maps in three:
            with pytest.raises((LanguageError, ValueError), match="no map for texts in (nl|nld-Latn)"):
                maps.transform(raw, codes, ROLES)
        with pytest.raises(
            ValueError, match="^no map for texts in nl; give lang, one of deu-Latn, eng-Latn, [^_]+[.]$"
        ):
            three[2].transform(raw, codes, ROLES)
        return
    for maps in three:
        np.testing.assert_allclose(maps.transform(raw, codes, ROLES), encoded(model, codes), atol=1e-6)
    typology.nearest.cache_clear()


@pytest.mark.parametrize("unknown", ["error", "mean", "related"])
def test_the_exported_files_take_codes_with_a_region_a_script_or_of_another_scheme(saved, workdir, unknown):
    model, raw = saved("affine", unknown)
    export_numpy(load_maps("saved"), "exported")
    for code, usual in {
        "de-AT": "deu-Latn",
        "en_US": "eng-Latn",
        "ger": "deu-Latn",
        "es-419": "spa-Latn",
        "fr-Latn": "fra-Latn",
    }.items():
        found = Map.load("exported").transform(raw, [code] * 5, ROLES)
        np.testing.assert_allclose(found, encoded(model, [usual] * 5), atol=1e-6)


def test_a_relative_in_the_exported_files_is_a_fitted_language(saved, workdir, monkeypatch):
    """Dutch is nearer to Afrikaans, which was not fitted either, than to English, whose map it gets in the model."""
    from xalign_models import typology

    lines = {"deu": ["IE", "Germanic"], "eng": ["IE", "Germanic"], "fra": ["IE", "Romance"], "spa": ["IE", "Romance"],
             "afr": ["IE", "Germanic", "Low"], "nld": ["IE", "Germanic", "Low"]}  # fmt: skip
    bits = {"deu": "11", "afr": "11", "eng": "00", "nld": "00", "fra": "01", "spa": "01"}
    monkeypatch.setattr(typology, "load_uriel", lambda: {"families": lines, "syntax": bits})
    typology.nearest.cache_clear()
    model, raw = saved("affine", "related")
    export_numpy(load_maps("saved"), "exported")
    found = Map.load("exported").transform(raw, ["nld-Latn"] * 5, ROLES)
    np.testing.assert_allclose(found, encoded(model, ["nld-Latn"] * 5), atol=1e-6)
    assert not np.allclose(found, encoded(model, ["afr-Latn"] * 5), atol=1e-3)
    typology.nearest.cache_clear()


def test_an_alignment_of_its_own_keeps_lengths(workdir):
    rng = np.random.default_rng(0)
    alignment = make("centered").fit({code: rng.standard_normal((9, 4)) for code in ("deu-Latn", "eng-Latn")})
    alignment.save("alone")
    rows, codes = rng.standard_normal((3, 4)), ["de", "en", "deu"]
    np.testing.assert_allclose(xalign_models.load_map("alone").transform(rows, codes), alignment.transform(rows, codes))


def test_what_does_not_fit_is_refused_in_one_line(saved, workdir):
    _, raw = saved("procrustes")
    maps = xalign_models.load_map("saved")
    with pytest.raises(AlignmentError, match=r"the maps take embeddings \(n, 16\)"):
        maps.transform(raw[:, :8], "de")
    with pytest.raises(AlignmentError, match="2 languages or prompts for 5 rows"):
        maps.transform(raw, ["de", "en"])
    with pytest.raises(AlignmentError, match="no map for the prompt 'title'"):
        maps.transform(raw, "de", "title")
    with pytest.raises(LanguageError, match="an unknown language"):
        maps.transform(raw)


@pytest.mark.parametrize(
    "damage",
    [
        {"dim": 10**13},
        {"prompts": {"query": -1}},
        {"languages": {"deu-Latn": 0.5}},
        {"default_lang": 5},
        {"length": -1},
        {"length": "long"},
    ],
    ids=str,
)
def test_settings_of_maps_that_no_one_wrote_are_refused(tmp_path, damage):
    settings = {
        "format": 1, "method": "centered", "dim": 4, "normalise": False, "languages": {"deu-Latn": 0}, "prompts": {},
        "default_lang": None, "unknown": "error", "unknown_prompt": "error",
    }  # fmt: skip
    save_file({"shift": np.ones((1, 4), np.float32)}, tmp_path / "map.safetensors")
    (tmp_path / "map.json").write_text(json.dumps(settings))
    assert (xalign_models.load_map(tmp_path).transform(np.zeros((1, 4)), "de") == 1).all()
    (tmp_path / "map.json").write_text(json.dumps(settings | damage))
    with pytest.raises(AlignmentError, match="are damaged"):
        xalign_models.load_map(tmp_path)


@pytest.mark.parametrize("damage", ["cut", "nan", "few", "dim", "path", "format", "none", "list"])
def test_damaged_maps_are_refused(saved, workdir, damage):
    saved("procrustes")
    folder = next((workdir / "saved").glob("*Aligned"))
    weights, config = folder / "model.safetensors", folder / "config.json"
    arrays, settings = load_file(weights), json.loads(config.read_text())
    if damage == "cut":
        weights.write_bytes(weights.read_bytes()[:-8])
    elif damage in {"nan", "few"}:
        arrays["shift"] = arrays["shift"][:-1] if damage == "few" else arrays["shift"] * np.nan
        save_file(arrays, weights)
    elif damage == "path":
        modules = workdir / "saved" / "modules.json"
        modules.write_text(modules.read_text().replace(folder.name, f"../saved/{folder.name}"))
    elif damage == "list":
        (workdir / "saved" / "modules.json").write_text("[1, 2]")
    else:
        settings |= {"dim": {"dim": 15}, "format": {"format": 2}, "none": {"languages": 3}}[damage]
        config.write_text(json.dumps(settings))
    with pytest.raises((AlignmentError, FileError)) as caught:
        xalign_models.load_map("saved")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("method", METHODS)
def test_an_onnx_graph_equals_encode(saved, workdir, method):
    model, raw = saved(method)
    export_onnx(load_maps("saved"), "map.onnx")
    session = onnxruntime.InferenceSession("map.onnx", providers=["CPUExecutionProvider"])
    settings = json.loads(session.get_modelmeta().custom_metadata_map["settings"])
    prompts, languages = settings["prompts"] or {}, settings["languages"]
    number = [prompts.get(role, 0) + (languages[code] if languages else 0)
              for role, code in zip(ROLES, CODES, strict=True)]  # fmt: skip
    (found,) = session.run(None, {"embedding": raw, "map": np.array(number)})
    np.testing.assert_allclose(found, encoded(model), atol=1e-5)
    (same,) = session.run(None, {"embedding": raw[:1], "map": np.array([settings["identity"]])})
    np.testing.assert_allclose(same[0], raw[0] / np.linalg.norm(raw[0]), atol=1e-5)
    mean = np.array([settings["means"].get("passage", settings["means"].get("", 0))])
    (found,) = session.run(None, {"embedding": raw[1:2], "map": mean})
    maps = load_maps("saved", unknown="mean")
    expected = maps.transform(raw[1:2], "fin", "passage")
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_the_command_writes_both(saved, workdir, xalign):
    saved("lir")
    status, out, _ = xalign("export", "saved", "--numpy", "folder", "--onnx", "map.onnx")
    assert status == 0
    assert out.splitlines() == ["lir: folder", "lir: map.onnx"]
    assert {path.name for path in (workdir / "folder").iterdir()} == {"apply_map.py", "map.json", "map.safetensors"}
    assert len({path.stat().st_mode for path in (workdir / "folder").iterdir()}) == 1
    assert xalign("export", "saved")[0] == 2
    assert xalign("export", "saved", "--numpy", ".")[0] == 2
    assert not xalign("export", "saved", "--numpy", "folder", "--onnx", "map.onnx")[0]
    (workdir / "mine.onnx").write_text("mine")
    for place in ("mine.onnx", "folder"):
        status, _, (line,) = xalign("export", "saved", "--onnx", place)
        assert (status, f"{place} exists and is not a graph that xalign wrote" in line) == (2, True)
    assert (workdir / "mine.onnx").read_text() == "mine"
    _, raw = saved("centered")
    length = np.median(np.linalg.norm(raw, axis=1))
    (line,) = xalign("export", "saved", "--numpy", "folder")[1].splitlines()
    assert float(line.removeprefix("centered: folder, for vectors of length ")) == pytest.approx(length, rel=0.5)


def test_encode_takes_a_language_per_text_in_any_order(saved):
    model, _ = saved("procrustes")
    pairs = [{"text": text, "lang": code} for text, code in zip(TEXTS, CODES, strict=True)]
    expected = model.encode(pairs, prompt_name="passage")
    np.testing.assert_allclose(model.encode(TEXTS, lang=CODES, prompt_name="passage"), expected, atol=1e-6)
    np.testing.assert_allclose(model.encode(TEXTS[::-1], lang=CODES[::-1], batch_size=2, prompt_name="passage"),
                               expected[::-1], atol=1e-6)  # fmt: skip
    np.testing.assert_allclose(
        model.encode_query(TEXTS, lang=CODES), model.encode(pairs, prompt_name="query"), atol=1e-6
    )
    with pytest.raises(LanguageError, match="one for each text of a list, not 2"):
        model.encode(TEXTS, lang=["de", "en"])
