"""Choosing from the packaged table: queries of a team lead, limits, and what a choice says."""

from __future__ import annotations

import numpy as np
import pytest

from xalign_models.atlas import load_atlas
from xalign_models.atlas.choose import CLOSE, Wish, choose, understood
from xalign_models.atlas.scores import scores_of
from xalign_models.errors import LanguageError, ModelError

QUERIES = {
    "Swahili": "swh-Latn", "sw": "swh-Latn", "SWA": "swh-Latn", "sw-KE": "swh-Latn", "German": "deu-Latn",
    "deutsch": "deu-Latn", "ger": "deu-Latn", "de_CH": "deu-Latn", "gsw": None, "Swiss German": None,
    "Arabic": "arb-Arab", "العربية": "arb-Arab", "Egyptian Arabic": "arz-Arab", "arz": "arz-Arab", "zh": "zho-Hans",
    "zh-TW": "zho-Hant", "zh-Hant": "zho-Hant", "zho_Hant": "zho-Hant", "Chinese (Traditional)": "zho-Hant",
    "pt-BR": "por-Latn", "sr-Latn": None, "srp-Cyrl": "srp-Cyrl", "Hindi": "hin-Deva", "no": "nob-Latn",
    "tl": "tgl-Latn", "yue": "yue-Hant", "iw": "heb-Hebr", "Javanese": "jav-Latn", "ka": "kat-Geor",
    "Hawaiian": "haw-Latn", "Kurdish": None, "zh_Hant_TW": "zho-Hant", "sr_Cyrl_RS": "srp-Cyrl",
    "Mandarin": "zho-Hans", "cmn": "zho-Hans", "Farsi": "pes-Arab", "Bokmål": "nob-Latn", "bokmal": "nob-Latn",
    "Myanmar": "mya-Mymr", "Brazilian Portuguese": "por-Latn", "Traditional Chinese": "zho-Hant", "Oriya": "ory-Orya",
    "Kurdish (Sorani)": "ckb-Arab", "Sorani": "ckb-Arab", "Dari": "prs-Arab", "Yorùbá": "yor-Latn",
    "Serbo-Croatian": "srp-Latn", "US English": "eng-Latn", "हिंदी": None,
}  # fmt: skip
"""49 words for languages, and what they mean; None is a language that the table may have or lack."""

APACHE = ("apache-2.0", "Apache 2.0", "apache-2", "apache2", "Apache License 2.0", "The Apache License, Version 2.0")
"""Words for one licence."""


@pytest.fixture(scope="module")
def atlas():
    return load_atlas()


@pytest.mark.parametrize("word", QUERIES)
def test_a_language_is_known_by_what_people_call_it(atlas, word):
    languages = scores_of(atlas).languages
    try:
        code = understood(word, languages)
    except LanguageError as error:
        assert QUERIES[word] is None
        assert word in str(error)
    else:
        assert QUERIES[word] in {code, None}
        assert choose(atlas, Wish((code,), "retrieval")).candidates


@pytest.mark.parametrize("word", ["Klingonese", "xx", "constructor", "", "e5"])
def test_what_is_no_language_is_refused(atlas, word):
    with pytest.raises(LanguageError, match="is not a language that the atlas knows"):
        understood(word, scores_of(atlas).languages)


def test_doubt_counts_against_a_model_and_candidates_lie_inside(atlas):
    for wish in (Wish(("swh-Latn", "tel-Telu")), Wish(("deu-Latn",), "Similarity"), Wish(("haw-Latn",), "retrieval")):
        candidates = choose(atlas, wish).candidates
        assert (np.diff([one.cautious for one in candidates]) <= 1.1e-4).all()
        assert all(one.cautious <= one.score + 1e-9 for one in candidates)
        assert all(one.low <= one.score + 1e-9 <= one.high + 2e-9 for one in candidates)
        assert all(one.worst[1] <= one.score + 1e-9 and one.worst[0] in wish.languages for one in candidates)


def test_a_licence_is_known_as_people_write_it(atlas):
    expected = choose(atlas, Wish(("deu-Latn",), licence="apache-2.0")).candidates
    assert {"apache-2.0", "apache-2"} <= {one.about.licence for one in expected}
    for text in APACHE:
        assert choose(atlas, Wish(("deu-Latn",), licence=text)).candidates == expected
    with pytest.raises(ModelError, match=r"--license WTFPL: no model has it; the most common are .*apache-2\.0"):
        choose(atlas, Wish(("deu-Latn",), licence="WTFPL"))


def test_a_licence_that_the_registry_does_not_specify_is_unknown(atlas):
    for licence in ("", " ", "not specified", "License"):
        with pytest.raises(ModelError, match="names no licence; give one such as MIT"):
            Wish(("deu-Latn",), licence=licence)
    models = [atlas.models[name] for name in scores_of(atlas).models if name in atlas.models]
    unknown = [one for one in models if one.licence in {None, "not specified"}]
    assert None in {one.licence for one in unknown} != {None}
    said = choose(atlas, Wish(("deu-Latn",), licence="mit")).notes[-1]
    assert said == f"Models left out because the registry does not say whether they fit: {len(unknown)}."


def test_limits_are_kept_in_any_case(atlas):
    wish = Wish(("deu-Latn",), "Retrieval", 6 * 10**8, "MIT", 768)
    found = choose(atlas, wish)
    for one in found.candidates:
        assert (one.about.licence or "").lower() == "mit"
        assert one.about.parameters <= 6 * 10**8
        assert one.about.dimension <= 768
        assert one.memory == 2 * one.about.parameters
        assert one.index == 4_000_000 * one.about.dimension
    assert any("left out because the registry" in line for line in found.notes)
    with pytest.raises(ModelError, match="--max-params"):
        choose(atlas, Wish(("deu-Latn",), None, 1000))


def test_the_cheapest_is_close_to_the_best_and_no_larger_than_any_other_that_is(atlas):
    found = choose(atlas, Wish(("swh-Latn", "yor-Latn"), "bitext"))
    near = [
        one for one in found.candidates if one.cautious >= found.candidates[0].cautious - CLOSE and one.about.parameters
    ]
    cheapest = next(one for one in near if one.model == found.cheapest)
    assert cheapest.about.parameters == min(one.about.parameters for one in near)


def test_a_language_that_no_task_has_is_said_to_be_a_guess(atlas):
    found = choose(atlas, Wish(("haw-Latn",), "retrieval"))
    assert found.coverage == {"haw-Latn": 0}
    assert found.notes[0].startswith("A guess: no retrieval task has Hawaiian (haw-Latn)")
    assert all(one.measured == 0 for one in found.candidates)


def test_a_language_that_no_task_of_any_kind_has_is_ranked_by_predictions(atlas):
    found = choose(atlas, Wish(("taq-Latn",)))
    assert found.coverage == {"taq-Latn": 0}
    assert found.notes[0].startswith("A guess: no task has Tamasheq (Latin) (taq-Latn)")
    assert all(one.measured == 0 < one.low < one.score < one.high for one in found.candidates)


def test_a_thin_english_model_is_not_first_in_german(atlas):
    found = choose(atlas, Wish(("deu-Latn",), None, 50_000_000, None, 384))
    assert found.candidates[0].measured >= found.scores / 2


def test_measurements_worth_making_are_of_rivals_and_named(atlas):
    found = choose(atlas, Wish(("deu-Latn",), "retrieval"))
    rivals = {one.model for one in found.candidates if one.high > found.candidates[0].low}
    assert found.next
    assert all(line.split(" on retrieval in German")[0] in rivals for line in found.next)


@pytest.mark.parametrize("adjusted", [False, True])
def test_measurements_worth_making_have_the_intervals_of_the_ranking(atlas, adjusted):
    found = choose(atlas, Wish(("fra-Latn",), "classification", adjusted=adjusted))
    ends = {one.model: f"now {100 * one.low:.0f} to {100 * one.high:.0f}" for one in found.candidates}
    assert found.next
    assert all(line.endswith(ends[line.split(" on ")[0]]) for line in found.next)


def test_wrong_wishes_are_refused(atlas):
    with pytest.raises(LanguageError, match="--languages"):
        Wish(())
    with pytest.raises(ModelError, match="--task chat: choose one of retrieval, bitext"):
        Wish(("deu-Latn",), "Chat")
    with pytest.raises(LanguageError, match="xyz-Latn"):
        choose(atlas, Wish(("xyz-Latn",)))
