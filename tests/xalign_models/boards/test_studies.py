"""Studies are found by what models are made of, not by a list."""

from __future__ import annotations

from dataclasses import replace

import pytest

from xalign_models.boards.leaderboard import leaderboard
from xalign_models.boards.studies import prompt_of, studies
from xalign_models.errors import ResultsError
from xalign_models.results.reading import read_results
from xalign_models.specs import AlignmentSpec, BackboneSpec, ModelSpec

E5 = BackboneSpec("e5", "e5-files", prompts=(("default", "query: "), ("document", "passage: ")))
LSAR = AlignmentSpec("lsar", "lsar")
MODELS = (
    ModelSpec(E5),
    ModelSpec(E5, LSAR),
    ModelSpec(E5, AlignmentSpec("lir-1", "lir")),
    ModelSpec(E5, AlignmentSpec("lir-15", "lir")),
    ModelSpec(E5, AlignmentSpec("procrustes-shrunk", "procrustes")),
    ModelSpec(replace(E5, name="e5-prompts82443a", prompts=(("default", ""),))),  # the prompt is a column
    ModelSpec(replace(E5, name="e5-large", model="larger-files", layer=3)),  # another model whose name is longer
    ModelSpec(replace(E5, name="e5__llm", tuned="lira")),
    ModelSpec(BackboneSpec("other", "x"), LSAR, "ntrex"),  # nothing fitted on the default text to compare with
)
STUDIES = (
    ModelSpec(replace(E5, name="e5__llm", tuned="lira-no-critic")),
    ModelSpec(replace(E5, name="e5__llm", tuned="lira-seed-1")),
    ModelSpec(replace(E5, name="e5__llm", tuned="plain-translated")),
    ModelSpec(replace(E5, name="e5-layer6", layer=6)),
    ModelSpec(replace(E5, name="e5-layer6", layer=6), LSAR),
    ModelSpec(E5, LSAR, "gettext"),
)


def test_ablations_seeds_controls_settings_and_fit_texts_are_studies() -> None:
    specs = {spec.name: spec for spec in (*MODELS, *STUDIES)} | {"org/foreign": None}
    assert studies(specs) == {spec.name for spec in STUDIES}


def test_studies_do_not_depend_on_the_order_of_models() -> None:
    """A trained model and its backbone may share the backbone's name, but not the files."""
    trained = ModelSpec(replace(E5, model="trained-files", tuned="contrastive-100"))
    specs = {spec.name: spec for spec in (*MODELS, *STUDIES, trained)}
    backwards = dict(reversed(specs.items()))
    assert studies(specs) == studies(backwards) == {spec.name for spec in STUDIES}


@pytest.mark.parametrize(
    ("prompts", "shown"),
    [
        ((), ""),
        ((("default", ""),), "none"),
        ((("default", "query: "), ("query", "query: "), ("document", "passage: ")), "query: / passage:"),
        (
            tuple((code, f"{code}: [TEXT]") for code in ("deu-Latn", "eng-Latn", "fra-Latn", "swh-Latn")),
            "one per language",
        ),
    ],
)
def test_a_prompt_in_a_few_words(prompts, shown: str) -> None:
    assert prompt_of(ModelSpec(replace(E5, prompts=prompts))) == shown
    assert prompt_of(None) == ""


def test_models_and_studies_have_boards_of_their_own(put, tmp_path) -> None:
    for spec in (*MODELS, *STUDIES):
        put(spec.name, "T", {"en": 0.5}, spec=spec.to_dict())
    put(STUDIES[0].name, "OnlyStudies", {"en": 0.5}, spec=STUDIES[0].to_dict())
    results = read_results(tmp_path)
    for study, chosen in ((False, MODELS), (True, STUDIES), (None, MODELS + STUDIES)):
        assert {row.name for row in leaderboard(results, study=study).rows} == {spec.name for spec in chosen}
    prompts = {row.name: row.prompt for row in leaderboard(results, study=False).rows}
    assert (prompts["xalign/plain__e5"], prompts["xalign/plain__e5-prompts82443a"]) == ("query: / passage:", "none")
    with pytest.raises(ResultsError, match="--studies"):
        leaderboard(results, tasks=["OnlyStudies"], study=False)
