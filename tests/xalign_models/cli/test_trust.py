"""Code of a model's own runs where the user says so, and the results say so too."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.xalign_models.backbones.test_policy import CUSTOM, module
from xalign_models.backbones.loading import open_backbone
from xalign_models.errors import ModelError
from xalign_models.models.building import build
from xalign_models.models.card import read_card
from xalign_models.models.names import find_spec
from xalign_models.models.saving import save
from xalign_models.specs import ModelSpec


@pytest.fixture
def custom(tiny_model, workdir):
    folder = shutil.copytree(tiny_model, workdir / "custom")
    module(folder, "doubling.Doubled", path="")
    (folder / "doubling.py").write_text(CUSTOM)
    return folder


def test_a_run_says_in_name_and_spec_that_code_was_trusted(xalign, workdir, custom, write_text):
    write_text(workdir / "own", 20)
    command = ("run", "-m", custom, "-t", "OwnParallel", "--data", "own=own", "--json")
    status, out, err = xalign(*command)
    assert status == 2
    assert "has its own code" in json.loads(out)[0]["error"]
    assert "--trust-remote-code" in json.loads(out)[0]["error"]
    assert len(err) == 1
    status, out, err = xalign(*command, "--trust-remote-code", custom)
    assert status == 0, err
    (outcome,) = json.loads(out)
    assert "trust" in outcome["model"]
    (meta,) = (workdir / "results").glob("*trust*/*/model_meta.json")
    assert json.loads(meta.read_text())["loader_kwargs"]["spec"]["backbone"]["trust_remote_code"] is True


def test_trust_comes_from_nobodys_file(custom, monkeypatch):
    spec = find_spec(str(custom), trust_remote_code=str(custom))
    assert ModelSpec.from_dict(spec.to_dict()).backbone.trust_remote_code is False
    (custom / "xalign.json").write_text(json.dumps({"spec": spec.to_dict(), "content": read_card(custom).content}))
    claimed = read_card(custom).spec
    assert claimed is not None
    monkeypatch.setenv("XALIGN_ALLOW", str(custom))
    with pytest.raises(ModelError, match="has its own code"):
        open_backbone(claimed.backbone).modules("cpu")


def test_a_model_with_code_is_not_saved_without_it(custom, workdir):
    with pytest.raises(ModelError, match="runs its own code, which cannot be saved"):
        save(build(find_spec(str(custom), trust_remote_code=str(custom)), device="cpu"), workdir / "saved")
