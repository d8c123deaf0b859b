"""LAReQA on made-up files: one pool of all languages, each text in its own, AP as scikit-learn's, items and errors."""

from __future__ import annotations

import json
import os
from pathlib import Path

import mteb
import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from xalign_models.errors import DataError
from xalign_models.evaluation.cache import SafeResultCache
from xalign_models.evaluation.run import run_one
from xalign_models.models import fitting
from xalign_models.specs import AlignmentSpec
from xalign_tasks.lareqa import MLQAR, XQuADR
from xalign_tasks.lareqa.reader import read_file, read_paragraphs, split

CODES = {"deu-Latn": "de", "eng-Latn": "en", "fra-Latn": "fr"}
PARAGRAPHS, SENTENCES, QUESTIONS = 6, 4, 12
TURN = {
    one: np.linalg.qr(np.random.default_rng(seed).standard_normal((16, 16))).Q
    for seed, one in enumerate(("deu", "fra"))
}


def _revision(task):
    """The data revision that a task takes of the text at hand."""
    task.identify()
    return task.metadata.revision


class Small(XQuADR):
    """Three languages and a few sentences each."""

    expected = dict.fromkeys(CODES, (QUESTIONS, PARAGRAPHS * SENTENCES))
    needs = tuple(CODES)
    metadata = XQuADR.metadata.model_copy(update={"eval_langs": {one: [one] for one in CODES}})


def paragraphs(language: str) -> list[dict]:
    """Sentence 4 p + s of paragraph p has that meaning; questions mean what the second and the last sentence do."""
    found = []
    for p in range(PARAGRAPHS):
        sentences = [f"{language} {1000 + SENTENCES * p + s}" for s in range(SENTENCES)]
        starts = np.cumsum([0, *(len(one) + 1 for one in sentences)]).tolist()
        qas = [
            {"id": f"{p}-{s}", "question": sentences[s], "answers": [{"answer_start": starts[s] + 4, "text": "1"}]}
            for s in (1, 3)
        ]
        breaks = [[start, start + len(one)] for start, one in zip(starts, sentences, strict=False)]
        found.append({"context": " ".join(sentences), "qas": qas, "sentence_breaks": breaks, "sentences": sentences})
    return found


def write(path: Path, content: list[dict]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"data": [{"title": "", "paragraphs": content}]}))
    return path


@pytest.fixture
def xquad(workdir):
    folder = workdir / "data" / "lareqa" / "xquad-r"
    for language, code in CODES.items():
        write(folder / f"{code}.json", paragraphs(language[:3]))
    return folder


@pytest.fixture
def fitted(workdir, planted):
    def fit(raw, languages=("deu", "eng", "fra")):
        text = planted.write(workdir / f"fit-{len(languages)}", range(60), languages)
        spec = AlignmentSpec("procrustes", "procrustes", corpora=(f"own:{text}",))
        return fitting.fit(spec, lambda texts, language, progress=None: raw.encode(texts))

    return fit


def scores(encoder, task=None, **kwargs):
    return (task or Small()).evaluate(encoder, encode_kwargs={}, **kwargs)


class SmallAsPublished(Small):
    """The same, as in the code behind the published numbers."""

    as_published = True


def test_as_published_a_sentence_has_its_paragraph_and_vectors_their_lengths(xquad, planted, make_encoder):
    encoder, seen = make_encoder(planted(shift={"deu": 9 * np.ones(16)})), []

    class Reads(type(encoder.raw)):
        def encode(self, texts, *args):
            seen.extend(texts)
            return super().encode([" ".join(text.split()[:2]) for text in texts], *args)

    encoder.raw.__class__ = Reads
    found, plain = scores(encoder, SmallAsPublished()), scores(make_encoder(planted(shift={"deu": 9 * np.ones(16)})))
    paragraph = paragraphs("deu")[1]["context"]
    assert f"deu 1004 {paragraph}" in seen
    assert "deu 1005" in seen  # a question stands alone
    raw = planted(shift={"deu": 9 * np.ones(16)})
    texts = [f"{code[:3]} {1000 + i}" for code in CODES for i in range(PARAGRAPHS * SENTENCES)]
    asked = [f"eng {1000 + SENTENCES * p + s}" for p in range(PARAGRAPHS) for s in (1, 3)]
    rows = raw.encode(asked) @ raw.encode(texts).T
    relevant = [[text.split()[1] == question.split()[1] for text in texts] for question in asked]
    expected = np.mean([average_precision_score(*pair) for pair in zip(relevant, rows, strict=True)])
    assert found["eng-Latn"]["map"] == pytest.approx(expected, abs=1e-5)
    assert found["eng-Latn"]["map"] != pytest.approx(plain["eng-Latn"]["map"], abs=1e-3)


def brute_force(raw):
    """mAP by question language, and the heat map, a question at a time."""
    texts = [f"{one[:3]} {1000 + i}" for one in CODES for i in range(PARAGRAPHS * SENTENCES)]
    pool = raw.encode(texts)
    pool /= np.linalg.norm(pool, axis=1, keepdims=True)
    maps, cells = {}, {}
    for language in CODES:
        asked = [f"{language[:3]} {1000 + SENTENCES * p + s}" for p in range(PARAGRAPHS) for s in (1, 3)]
        relevant = [np.array([text.split()[1] == question.split()[1] for text in texts]) for question in asked]
        rows = raw.encode(asked) @ pool.T
        maps[language] = np.mean([average_precision_score(*pair) for pair in zip(relevant, rows, strict=True)])
        for answer in CODES:
            found = []
            for right, row in zip(relevant, rows, strict=True):
                own = right & np.array([text.startswith(answer[:3]) for text in texts])
                found.append(average_precision_score(own[own | ~right], row[own | ~right]))
            cells[language, answer] = np.mean(found)
    return maps, cells


def test_scores_are_those_of_one_pool_and_each_text_has_its_language(xquad, planted, make_encoder, tmp_path):
    raw = planted(shift={"deu": np.ones(16), "fra": np.arange(16) / 4})
    encoder = make_encoder(raw, prompts={"query": "q: ", "document": "d: "})
    seen, inner = set(), encoder.encode_texts

    def spy(texts, languages, *args):
        seen.update(zip((text[:3] for text in texts), languages, strict=True))
        return inner(texts, languages, *args)

    encoder.encode_texts = spy
    task, cache = Small(), SafeResultCache(tmp_path)
    (result,) = mteb.evaluate(
        encoder, task, cache=cache, prediction_folder=tmp_path, show_progress_bar=False
    ).task_results
    assert seen == {(one[:3], one) for one in CODES}
    assert raw.prompts == ["d: ", "q: "]  # the pool in one piece
    assert result.dataset_revision == task.metadata.revision != "local"

    maps, cells = brute_force(raw)
    found = {one["hf_subset"]: one for one in result.scores["test"]}
    assert found.keys() == CODES.keys()
    with np.load(tmp_path / "XQuAD-R.npz") as items:
        for language, of_language in found.items():
            assert of_language["main_score"] == of_language["map"] == pytest.approx(maps[language], abs=1e-5)
            assert of_language["map_all_questions"] == pytest.approx(np.mean(list(maps.values())), abs=1e-5)
            assert items[language].shape == (QUESTIONS,)
            assert items[language].mean() == pytest.approx(of_language["map"], abs=1e-5)
            row = {answer: of_language[f"one_target_{answer}"] for answer in CODES}
            assert row == pytest.approx({answer: cells[language, answer] for answer in CODES}, abs=1e-5)
            assert of_language["same"] == of_language["one_target_same"] == row[language]
            others = [value for answer, value in row.items() if answer != language]
            assert of_language["cross"] == of_language["one_target_other"] == pytest.approx(np.mean(others), abs=1e-5)
    assert 0.2 < min(maps.values()) < max(maps.values()) < 1


def test_a_space_that_is_biased_to_the_own_language_shows_in_the_heat_map(xquad, planted, make_encoder):
    rng = np.random.default_rng(0)
    apart = planted(shift={one[:3]: 9 * rng.standard_normal(16) for one in CODES})
    for of_language in scores(make_encoder(apart)).values():
        assert of_language["one_target_same"] > 0.9
        assert of_language["one_target_other"] < 0.1
    for of_language in scores(make_encoder(planted())).values():
        assert of_language["one_target_other"] == of_language["map"] == 1


def test_swapped_languages_cannot_hide(xquad, planted, make_encoder, fitted):
    """The alignment undoes each language's own turn, so that text under another language's name is lost."""
    raw = planted(turn=TURN)
    encoder = make_encoder(raw, fitted(raw))
    assert {one["main_score"] for one in scores(encoder).values()} == {1.0}
    german, french = (xquad / f"{code}.json" for code in ("de", "fr"))
    content = german.read_bytes()
    german.write_bytes(french.read_bytes())
    french.write_bytes(content)
    assert max(one["main_score"] for one in scores(encoder).values()) < 0.7


def test_a_model_that_lacks_a_language_of_the_pool_is_not_scored(xquad, planted, make_encoder, fitted, tmp_path):
    raw = planted(turn=TURN)
    encoder = make_encoder(raw, fitted(raw, ("deu", "eng")))
    outcome = run_one(encoder, Small(), SafeResultCache(tmp_path), items=True)
    assert outcome.result is None
    assert outcome.unfitted == ("fra-Latn",)
    assert "No subset can be scored: test/planted is not fitted for fra-Latn." in outcome.error


def test_files_that_lack_something_are_refused(xquad, workdir):
    def refuses(match):
        with pytest.raises(DataError, match=match):
            Small().load_data()

    whole = paragraphs("fra")
    revision = _revision(Small())
    write(xquad / "fr.json", whole[:-1])
    assert _revision(Small()) != revision
    refuses(r"XQuAD-R: fra-Latn has 10 questions, the published set has 12; .*google-research-datasets/lareqa")
    less = [{**one, "sentences": one["sentences"], "qas": one["qas"]} for one in whole]
    less[0] = {key: value[:-1] if key.startswith("sentence") else value for key, value in whole[0].items()}
    write(xquad / "fr.json", less)
    refuses(r"question 0-3 has its answer at 31, outside the text")
    less[0]["qas"] = [whole[0]["qas"][0], {**whole[0]["qas"][1], "answers": [{"answer_start": 0}]}]
    write(xquad / "fr.json", less)
    refuses(r"fra-Latn has 23 candidates, the published set has 24")
    less[0]["qas"] = [whole[0]["qas"][0]] * 2
    write(xquad / "fr.json", less)
    refuses(r"question 0-1 occurs twice")
    write(xquad / "fr.json", [{**whole[0], "sentences": []}, {**whole[0], "sentences": ["one"]}])
    refuses(r"a paragraph has 1 sentences and 4 boundaries")
    (xquad / "fr.json").write_text("[]")
    refuses(r"fr.json is not in SQuAD's layout")
    (xquad / "fr.json").unlink()
    refuses(r"XQuAD-R is missing: set XALIGN_DATA .* lareqa/xquad-r/ .* de, en, fr")
    assert _revision(Small()) == "local"  # it can be listed


def test_an_answer_at_the_seam_counts_for_the_sentence_before(tmp_path):
    one = {"id": "1", "question": "?", "answers": [{"answer_start": 6, "text": "d"}]}
    two = {"id": "2", "question": "?", "answers": [{"answer_start": 7, "text": "e"}]}
    content = {"context": "abcde。def", "qas": [one, two], "sentence_breaks": [[0, 6], [6, 9]]}
    side = read_file(write(tmp_path / "zh.json", [content]))
    assert side.candidates == ["abcde。", "def"]
    assert side.answers == {"1": 0, "2": 1}


realdata = pytest.mark.skipif(
    not (Path(os.environ.get("XALIGN_DATA", "-")) / "lareqa" / "xquad-r").is_dir(), reason="XALIGN_DATA has no lareqa"
)


@pytest.mark.realdata
@realdata
def test_the_published_sizes():
    task = XQuADR()
    task.load_data()
    sides = {language: task.dataset[language]["test"] for language in task.metadata.eval_langs}
    assert sum(len(side.questions) for side in sides.values()) == 13_090
    assert sum(len(side.candidates) for side in sides.values()) == 13_014
    assert len({frozenset(side.questions) for side in sides.values()}) == 1  # the same ids in all languages
    for side in sides.values():
        assert side.answers.keys() == side.questions.keys()


@pytest.mark.realdata
@realdata
@pytest.mark.parametrize("code", "ar de en es hi vi zh".split())
def test_our_splitter_mostly_finds_lareqas_answer_sentence(code):
    """As far as MLQA-R's languages are in XQuAD-R, whose boundaries are LAReQA's own."""
    path = Path(os.environ["XALIGN_DATA"]) / "lareqa" / "xquad-r" / f"{code}.json"
    theirs, articles = read_file(path), json.loads(path.read_bytes())["data"]
    content = [{key: one[key] for key in ("context", "qas")} for article in articles for one in article["paragraphs"]]
    ours = read_paragraphs(content, "made up")
    same = [ours.candidates[ours.answers[one]] == theirs.candidates[theirs.answers[one]] for one in theirs.questions]
    assert np.mean(same) > 0.85
    assert len(ours.candidates) == pytest.approx(len(theirs.candidates), rel=0.1)


def test_sentences_are_split_at_final_punctuation_of_all_scripts():
    def parts(text):
        return [text[start:end] for start, end in split(text)]

    assert parts('One. Two?  "Three!" Four 3.5 etc. and so on. ') == [
        "One.",
        "Two?",
        '"Three!"',
        "Four 3.5 etc. and so on.",
    ]
    assert parts("一。二！三") == ["一。", "二！", "三"]
    assert parts("एक। दो।") == ["एक।", "दो।"]
    assert parts("واحد؟ اثنان.") == ["واحد؟", "اثنان."]
    assert parts("no end") == ["no end"]


class SmallMLQA(MLQAR):
    """Two languages; a question of one may have no counterpart in the other."""

    expected = {"deu-Latn": (2, 7), "eng-Latn": (3, 8)}
    needs = tuple(expected)
    metadata = MLQAR.metadata.model_copy(update={"eval_langs": {one: [one] for one in expected}})


def mlqa(words: str, ids: str) -> list[dict]:
    """A paragraph for each id, whose answer is in its second sentence."""
    found = []
    for one in ids:
        first, second = f"{words} {one} first.", f"{words} {one} second."
        answer = {"answer_start": len(first) + 1, "text": second}
        qas = [{"id": one, "question": f"{words} {one}?", "answers": [answer]}]
        found.append({"context": f"{first} {second}", "qas": qas})
    return found


LAYOUT = {"de": mlqa("Wort", "ab"), "en": mlqa("Word", "abc")}


def check_mlqa(task):
    task.load_data()
    german, english = (task.dataset[one]["test"] for one in SmallMLQA.expected)
    assert german.candidates == ["Wort a first.", "Wort a second.", "Wort b first.", "Wort b second."]
    assert german.answers == {"a": 1, "b": 3}
    assert english.answers == {"a": 1, "b": 3, "c": 5}
    assert english.questions == {one: f"Word {one}?" for one in "abc"}

    class Encoder:
        """A question is its answer's vector in both languages; one that lies near is of another question."""

        def encode(self, inputs, **kwargs):
            texts = [text for batch in inputs for text in batch["text"]]
            return np.array(
                [[*(10.0 * (one in text) for one in (" a", " b", " c")), "first" not in text] for text in texts]
            )

    found = scores(Encoder(), task)
    assert found["deu-Latn"]["map"] == found["eng-Latn"]["map"] == 1
    assert set(found["eng-Latn"]) >= {"one_target_deu-Latn", "one_target_eng-Latn", "one_target_other"}


@pytest.mark.parametrize("folder", ["mlqa/dev", "mlqa/MLQA_V1/dev"])
def test_mlqa_r_is_built_from_mlqa(workdir, folder):
    for code, content in LAYOUT.items():
        write(workdir / "data" / folder / f"dev-context-{code}-question-{code}.json", content)
    check_mlqa(SmallMLQA())
    write(workdir / "data" / folder / "dev-context-de-question-de.json", LAYOUT["de"][:1])
    with pytest.raises(DataError, match="MLQA-R: deu-Latn has 1 questions, the published set has 2"):
        SmallMLQA().load_data()


def test_mlqa_r_of_lareqa_goes_first_and_its_sentences_are_counted(workdir):
    for code, content in LAYOUT.items():
        write(workdir / "data" / "mlqa" / "dev" / f"dev-context-{code}-question-{code}.json", content)
        marked = [{**one, "sentence_breaks": split(one["context"])} for one in content]
        write(workdir / "data" / "lareqa" / "mlqa-r" / f"{code}.json", marked)
    with pytest.raises(DataError, match="MLQA-R: deu-Latn has 4 candidates, the published set has 7"):
        SmallMLQA().load_data()


def test_mlqa_r_is_built_from_the_hubs_mlqa(workdir, monkeypatch):
    def load(path, name, split, revision):
        assert (path, split) == ("google/xtreme", "validation")
        assert len(revision) == 40
        content = LAYOUT[name.removeprefix("MLQA.").split(".")[0]]
        return [
            {
                **question,
                "context": one["context"],
                "answers": {"answer_start": [question["answers"][0]["answer_start"]]},
            }
            for one in content
            for question in one["qas"]
        ]

    with pytest.raises(DataError, match=r"MLQA-R is missing: .*mlqa/dev/.* The hub's copy is unavailable too"):
        SmallMLQA().load_data()
    monkeypatch.setattr("datasets.load_dataset", load)
    check_mlqa(SmallMLQA())
