"""Hyperparameters: the paper's by default, refused when they make no sense."""

from __future__ import annotations

import json

import pytest

from xalign_models.configuration import from_mapping, to_mapping
from xalign_models.errors import ModelError
from xalign_models.training.contrastive.config import ContrastiveConfig


def test_defaults_are_the_papers():
    config = ContrastiveConfig()
    assert (config.rank, config.alpha, config.dropout, config.learning_rate) == (64, 16, 0.05, 5e-4)
    assert config.batch_size * config.accumulation == 128
    assert (config.languages, config.pivot, config.pairs, config.samples) == (
        ("arb-Arab", "spa-Latn"),
        "eng-Latn",
        "ntrex",
        1000,
    )


@pytest.mark.parametrize(("samples", "epochs", "expected"), [(100, None, 10), (101, None, 3), (1000, 7, 7)])
def test_epochs(samples, epochs, expected):
    assert ContrastiveConfig(samples=samples, epochs=epochs).passes == expected


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"samples": 0}, "samples 0"), ({"rank": 0}, "rank 0"), ({"epochs": 0}, "epochs 0"),
        ({"max_steps": -1}, "max_steps -1"), ({"accumulation": 0}, "accumulation 0"),
        ({"batch_size": 1}, "batch_size 1"), ({"tau": 0.0}, r"tau 0\.0"), ({"tau": float("nan")}, "tau nan"),
        ({"learning_rate": -1.0}, r"learning_rate -1\.0"), ({"dtype": "float16"}, "dtype float16"),
        ({"seed": -1}, "seed -1"), ({"seed": 2**32}, "seed 4294967296"), ({"alpha": 0}, "alpha 0"),
        ({"dropout": 1.0}, r"dropout 1\.0"), ({"warmup": -0.1}, r"warmup -0\.1"),
        ({"weight_decay": -1.0}, r"weight_decay -1\.0"), ({"max_grad_norm": 0.0}, r"max_grad_norm 0\.0"),
        ({"languages": ()}, "languages"), ({"languages": ("eng-Latn",)}, "languages"),
    ],
)  # fmt: skip
def test_nonsense_is_refused(fields, message):
    with pytest.raises(ModelError, match=message):
        ContrastiveConfig(**fields)


def test_plain_data_survives_json():
    config = ContrastiveConfig(dtype="bfloat16", languages=("deu-Latn", "deu-Latn"))
    assert from_mapping(ContrastiveConfig, json.loads(json.dumps(to_mapping(config)))) == config
