"""Nearness to English by layer and discrimination: numbers are those of the vectors, and planted spaces show."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from xalign_models.analysis import Request
from xalign_models.errors import DataError, LanguageError
from xalign_models.models.building import load_encoder
from xalign_models.models.names import find_spec
from xalign_tasks.analyses import discrimination, pivot_layers
from xalign_tasks.analyses.pivot_layers import linear_cka
from xalign_tasks.perturbations import KINDS, perturbed


def test_every_layers_measures_are_those_of_its_vectors(flores, tiny_model):
    request = Request((str(tiny_model),), flores, "cpu", rows=20, languages=("deu-Latn", "fra-Latn"))
    findings = pivot_layers.analyse(request)
    frame = findings.tables["layers"].set_index(["layer", "language"])
    assert frame.index.tolist() == [(layer, code) for layer in range(3) for code in ("deu-Latn", "fra-Latn")]
    encoder = load_encoder(find_spec(str(tiny_model), layer=1).backbone.model, device="cpu", layer=1)
    folder = flores / "data" / "flores200_dataset" / "devtest"
    x, y = (
        encoder.raw.encode((folder / f"{code}_Latn.devtest").read_text().splitlines()[:20]) for code in ("deu", "eng")
    )
    assert frame.loc[(1, "deu-Latn"), "cka"] == pytest.approx(linear_cka(x, y), abs=1e-6)
    assert frame.loc[(1, "deu-Latn"), "mexa"] == pivot_layers.compared(x, y)["mexa"]
    pooled = findings.tables["mexa"].set_index("language")
    by_layer = frame["mexa"].unstack("language")
    assert pooled["mexa_mean_over_layers"].to_dict() == pytest.approx(by_layer.mean().to_dict())
    assert pooled["mexa_max_over_layers"].to_dict() == pytest.approx(by_layer.max().to_dict())
    with pytest.raises(LanguageError, match="besides English"):
        pivot_layers.analyse(Request((str(tiny_model),), flores, "cpu", languages=("eng-Latn",)))


def test_equal_spaces_have_all_measures_at_one():
    x = np.random.default_rng(0).standard_normal((40, 8)).astype(np.float32)
    assert pivot_layers.compared(x, x) == pytest.approx(dict.fromkeys(pivot_layers.MEASURES, 1.0))


class Reads:
    """Gives a translation the vector of its English, and a changed sentence another by as much as it differs."""

    def __init__(self, english, blind):
        self.english, self.blind = english, blind

    def encode_texts(self, texts, languages, *_):
        rng = np.random.default_rng(0)
        content = {text: rng.standard_normal(16) for text in self.english}
        forms = {
            form: text for kind in KINDS for text, form in zip(self.english, perturbed(self.english, kind), strict=True)
        }
        return np.stack(
            [
                content[text]
                if text in content
                else content[self.english[int(text)]]
                if text.isdigit()
                else content[forms[text]] + (0 if self.blind else 0.5) * np.ones(16)
                for text in texts
            ]
        )


@pytest.mark.parametrize(("blind", "accuracy"), [(False, 1.0), (True, 0.0)])
def test_a_model_that_reads_prefers_translations_and_one_that_ties_does_not(blind, accuracy):
    english = [
        "In 1994 the river was crossed, which nobody in Paris knew.",
        "Two dogs are here, and Anna sees them all.",
    ]
    texts = {"eng-Latn": english, "deu-Latn": ["0", "1"]}
    frame = discrimination.discriminated(Reads(english, blind), texts)
    assert set(frame["change"]) == {*KINDS, discrimination.ALL}
    assert set(frame["accuracy"]) == {accuracy}


def test_the_line_of_chance_ends_before_the_bar_that_has_another_chance():
    changes = [*KINDS, discrimination.ALL]
    (axis,) = discrimination.draw(pd.DataFrame({"change": changes, "accuracy": 0.7}), "xalign/plain__m").axes
    (line,) = axis.lines
    assert (line.get_label(), {*line.get_ydata()}) == ("chance", {0.5})
    ends = [bar.get_x() + bar.get_width() for bar in axis.patches]
    assert ends[-2] < max(line.get_xdata()) < axis.patches[-1].get_x()
    assert axis.get_title().startswith("plain__m: ")


@pytest.mark.parametrize("rows", [1, 2])
def test_too_few_rows_are_refused_before_a_model_is_loaded(flores, rows):
    with pytest.raises(DataError, match="--rows: give at least 3"):
        pivot_layers.analyse(Request(("none",), flores, "cpu", rows=rows, languages=("deu-Latn",)))
