"""Languages far apart are told apart, a mixed space hides them, and Centered mixes it."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import normalized_mutual_info_score

from xalign_models.corpora import ENGLISH
from xalign_models.languages import canonical, to_flores
from xalign_models.models import fitting
from xalign_models.specs import AlignmentSpec
from xalign_tasks.language_identity import COMMON, SENTENCES, LanguageIdentity
from xalign_tasks.tatoeba36 import LANGUAGES


@pytest.fixture
def codes(workdir):
    """Every language of the task in LASER's layout, English beside each, each text as long as its row number."""
    folder = workdir / "data" / "tatoeba" / "v1"
    folder.mkdir(parents=True)
    codes = "ara ben cmn deu fra hin ind ita jpn por rus spa tgl tha tur urd vie".split()
    assert {canonical(code) for code in codes} == set(COMMON)
    for seed, code in enumerate(codes):
        for side in (code, "eng"):
            lines = (f"{side} {1000 * seed + i}\n" for i in range(SENTENCES + 5))
            (folder / f"tatoeba.{code}-eng.{side}").write_text("".join(lines))
    return codes


def score(encoder, folder=None):
    task = LanguageIdentity()
    return task.evaluate(encoder, "test", ["common18"], encode_kwargs={}, prediction_folder=folder)["common18"]


def test_separate_languages_score_zero_mixed_ones_one_and_centering_mixes(workdir, codes, planted, make_encoder):
    rng = np.random.default_rng(0)
    apart = planted(shift={code: 40 * rng.standard_normal(16) for code in [*codes, "eng"]})
    assert score(make_encoder(planted()))["main_score"] > 0.9
    found = score(make_encoder(apart), workdir)
    assert found["one_minus_nmi"] < 0.05
    assert found["nmi"] == pytest.approx(1 - found["one_minus_nmi"])
    assert len(apart.encoded) == 18 * SENTENCES

    labels = [one for one in [ENGLISH, *COMMON] for _ in range(SENTENCES)]
    with np.load(workdir / "LanguageIdentity.npz") as items:
        assert normalized_mutual_info_score(labels, items["common18"]) == pytest.approx(found["nmi"])

    text = planted.write(workdir / "fit", range(50_000, 50_300), ["eng", *codes])
    for code in codes:  # file names that the own corpus reads
        (text / f"{code}.txt").rename(text / f"{to_flores(canonical(code))}.txt")
    alignment = fitting.fit(AlignmentSpec("centered", "centered", corpora=(f"own:{text}",)), apart.encode)
    assert score(make_encoder(apart, alignment))["main_score"] > 0.9


def test_the_pools():
    pools = LanguageIdentity.metadata.eval_langs
    assert set(pools["tatoeba37"]) == {ENGLISH, *LANGUAGES}
    assert set(pools["common18"]) == {ENGLISH, *COMMON} < set(pools["tatoeba37"])
