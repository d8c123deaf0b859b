"""Trained models that come with xalign."""

from __future__ import annotations

import json

import numpy as np
import pytest

from xalign_models import assets, fit, load, save
from xalign_models.assets import PACKAGED
from xalign_models.errors import AssetError
from xalign_models.models.metadata import model_meta
from xalign_models.models.names import locate, trained_specs

FOLDERS = sorted(PACKAGED.iterdir())
"""Folders of the packaged models."""


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_packaged_model_is_small_and_found_by_the_first_part_of_its_name(folder, workdir):
    label = folder.name.split("__")[0]
    (workdir / label).mkdir()  # the user's folder of the same name is ./label
    for name in (label, folder.name, f"xalign/{folder.name}"):
        located = locate(name)
        assert located.card.directory == folder
        assert located.card.claims, "the files have changed since they were saved"
        assert located.name == located.spec.name == f"xalign/{folder.name}"
    assert f"xalign/{folder.name}" in trained_specs()
    assert located.spec.backbone.model == folder.name, "a path would hold on this machine alone"
    assert assets.packaged(folder.name) == folder
    assert model_meta(label).training_datasets >= {"WikiText"}
    files = [file for file in folder.rglob("*") if file.is_file()]
    assert sum(file.stat().st_size for file in files) < 5e6
    assert not [file for file in files if file.name in ("tokenizer.json", "model.safetensors")]


@pytest.mark.slow
def test_a_model_fitted_on_lusifer_small_names_no_path(workdir, take_assets):
    """So that its adapter opens on another machine."""
    take_assets("multilingual-e5-small-q4", "all-minilm-l6-v2", "gettext")
    options = {"corpus": "gettext", "languages": ["de", "en"], "limit": 12, "judge": [], "device": "cpu"}
    model = fit("centered", backbone="lusifer-small", **options)
    save(model, "fitted", adapter=True)
    texts = [path.read_text("utf-8") for path in (workdir / "fitted").rglob("*") if path.suffix in (".json", ".md")]
    assert len(texts) > 3 and not [text for text in texts if str(PACKAGED.parent) in text]
    text = [{"text": "Guten Morgen", "lang": "de"}]
    np.testing.assert_allclose(load("fitted", device="cpu").encode(text), model.encode(text), atol=1e-6)


@pytest.mark.slow
def test_lusifer_small_reads_other_languages():
    parts = json.loads((FOLDERS[0] / "lusifer_config.json").read_text())
    for part in (parts["encoder_base"], parts["llm_base"]):
        try:
            assert assets.resolve(part["model"]).fingerprint == part["fingerprint"]
        except AssetError as error:
            pytest.skip(str(error))
    english = ["Two dogs are playing in snow.", "How much does a train ticket cost?", "The parliament passed a law."]
    german = [
        "Zwei Hunde spielen im Schnee.",
        "Wie viel kostet eine Zugfahrkarte?",
        "Das Parlament beschloss ein Gesetz.",
    ]
    read = load("lusifer-small", device="cpu").encode(german)
    cosines = read @ load("all-MiniLM-L6-v2", device="cpu").encode(english).T  # in the English model's own space
    assert cosines.shape == (3, 3)
    assert (np.argmax(cosines, axis=1) == range(3)).all()
