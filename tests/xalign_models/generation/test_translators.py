"""Translators: prompts, language tokens, look-ups, and the journal that keeps their work."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Any

import pytest

from xalign_models.errors import DataError, LanguageError, ModelError
from xalign_models.generation.language_model import Completion
from xalign_models.generation.translators import Kind, Translations, Translator, TranslatorSpec, make_translator
from xalign_models.generation.translators.models import SHOTS, CausalTranslator, Seq2SeqTranslator
from xalign_models.generation.translators.running import UNKNOWN, translate_all


class Scripted(Translator):
    """Says what it is told to, and counts what it is asked."""

    def __init__(self, answer: Callable[[str], str] = lambda text: f"the {text}", fail_at: str = "") -> None:
        self.spec = TranslatorSpec(Kind.LLM, "scripted")
        self.asked: Counter[str] = Counter()
        self.batches: list[tuple[str | None, int]] = []
        self.answer, self.fail_at = answer, fail_at

    @property
    def identity(self) -> str:
        return "abc"

    def translate(self, texts: Sequence[str], language: str | None) -> list[Completion]:
        if self.fail_at in texts:
            raise KeyboardInterrupt
        self.asked.update(texts)
        self.batches.append((language, len(texts)))
        return [Completion(self.answer(text), finished=True) for text in texts]


TEXTS = [(f"made-up {i}", language) for language in ("deu-Latn", "tha-Thai") for i in range(10)]


@pytest.mark.parametrize(
    "text",
    ["llm:gemma-3-270m-q4", "llm:org/name?seed=1&temperature=0.8", "mt:facebook/m2m100_418M?beams=4", "reference:ntrex",
     "reference:ntrex+tatoeba_pairs", "corrupted:ntrex?seed=2", "file:some/path.jsonl?llm=1"],
)  # fmt: skip
def test_specs_are_written_as_they_are_read(text: str) -> None:
    spec = TranslatorSpec.parse(text)
    assert str(spec) == text
    assert "/" not in spec.label and "?" not in spec.label
    assert spec.is_llm == (text.startswith("llm") or text.endswith("llm=1"))


@pytest.mark.parametrize("text", ["gemma", "llm:", "gpt:x", "llm:x?heat=1", "llm:x?seed=one", "reference:x?seed=1"])
def test_bad_specs_are_named(text: str) -> None:
    with pytest.raises(ModelError, match="--translators"):
        TranslatorSpec.parse(text)


def test_each_text_is_translated_once_in_batches_of_one_language(tmp_path: Path) -> None:
    scripted = Scripted()
    kept = Translations(scripted, tmp_path, batch_size=4)
    summary = translate_all([*TEXTS, *TEXTS, ("", "deu-Latn")], [kept])["llm:scripted"]
    assert (summary.translated, summary.known) == (20, 0)
    assert set(scripted.asked.values()) == {2}  # the same words in two languages
    assert all(size <= 4 for _, size in scripted.batches)
    again = translate_all([*TEXTS, ("new", None)], [Translations(scripted, tmp_path)])["llm:scripted"]
    assert (again.translated, again.known) == (1, 20)
    assert kept.get(TEXTS[:1], online=False) == [("the made-up 0", "")]


def test_of_two_processes_one_translates_and_the_other_waits(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def slow(text: str) -> str:
        sleep(0.02)
        return f"the {text}"

    both = [Scripted(slow), Scripted(slow)]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda one: translate_all(TEXTS, [Translations(one, tmp_path, batch_size=2)]), both))
    assert set((both[0].asked + both[1].asked).values()) == {2}  # the same words in two languages
    assert sum(one["llm:scripted"].translated for one in found) == len(TEXTS)
    assert any("Another process is filling" in message for message in caplog.messages)
    with Translations(both[0], tmp_path)._journal.turn([("deu-Latn", "new")]):  # who lacks nothing waits for nobody
        translate_all(TEXTS, [Translations(both[1], tmp_path)])


def test_a_crash_loses_at_most_the_batch(tmp_path: Path) -> None:
    kept = Translations(Scripted(fail_at="made-up 7"), tmp_path, batch_size=3)
    with pytest.raises(KeyboardInterrupt):
        translate_all(TEXTS[:10], [kept])
    done = kept.path.read_text().count("\n")
    assert done == 6  # two batches of three before the one that failed
    scripted = Scripted()
    summary = translate_all(TEXTS[:10], [Translations(scripted, tmp_path, batch_size=3)])["llm:scripted"]
    assert (summary.known, summary.translated) == (done, 10 - done)
    assert set(scripted.asked.values()) == {1}


def test_bad_output_is_kept_with_its_name_and_not_asked_again(tmp_path: Path) -> None:
    outputs = {"leer": "", "russisch": "Это не английский", "verpackt": "Sure, here is the translation: good day"}
    scripted = Scripted(lambda text: outputs[text])
    kept = Translations(scripted, tmp_path)
    summary = translate_all([(text, "deu-Latn") for text in outputs], [kept])["llm:scripted"]
    assert summary.problems == {"empty": 1, "not English": 1}
    found = kept.get([(text, "deu-Latn") for text in outputs], online=True)
    assert [one.problem for one in found] == ["empty", "not English", ""]
    assert found[2].text == "good day"
    assert set(scripted.asked.values()) == {1}


def test_offline_names_the_command_and_online_translates(tmp_path: Path) -> None:
    kept = Translations(Scripted(), tmp_path)
    with pytest.raises(
        DataError, match=r"Texts without a translation by llm:scripted.*: 2, the first.*xalign translate"
    ):
        kept.get(TEXTS[:2], online=False)
    assert [one.text for one in kept.get(TEXTS[:2], online=True)] == ["the made-up 0", "the made-up 1"]
    assert len(kept.get(TEXTS[:2], online=False)) == 2


def test_a_language_model_is_shown_examples_or_asked(writer: Path) -> None:
    translator = make_translator(f"llm:{writer}?shots=2", "cpu")
    assert isinstance(translator, CausalTranslator)
    prompt = translator.prompt("Guten\nTag", "deu-Latn")
    assert prompt.count("English:") == 3
    assert SHOTS[0][2] in prompt and SHOTS[2][2] not in prompt
    assert prompt.endswith("German: Guten Tag\nEnglish:")
    assert translator.prompt("x", None).endswith("Foreign: x\nEnglish:")
    translator.model.tokenizer.chat_template = "{% for m in messages %}<{{ m.content }}>{% endfor %}"
    assert "Translate the German text" in translator.prompt("Guten Tag", "deu-Latn")


def test_a_random_language_model_translates_within_its_limit(writer: Path) -> None:
    translator = make_translator(f"llm:{writer}", "cpu")
    found = translator.translate(["ab", "abc"], "deu-Latn")
    assert len(found) == 2
    assert all("\n" not in one.text for one in found)
    other = make_translator(f"llm:{writer}?temperature=1.0", "cpu")
    assert translator.identity != other.identity and len(translator.identity) == 16


@pytest.mark.parametrize(
    ("languages", "source", "english"),
    [(("__de__", "__en__"), "de", "__en__"), (("deu_Latn", "eng_Latn"), "deu_Latn", "eng_Latn"), ((), None, None)],
)
def test_translation_models_are_told_the_languages_in_their_way(
    machine: Callable[..., Path], languages: tuple[str, ...], source: str | None, english: str | None
) -> None:
    translator = make_translator(f"mt:{machine(*languages)}", "cpu")
    assert isinstance(translator, Seq2SeqTranslator)
    tag = translator.tag("deu-Latn")
    tokenizer: Any = translator.model.tokenizer
    assert tag == ({"forced_bos_token_id": tokenizer.convert_tokens_to_ids(english)} if english else {})
    if source:
        assert tokenizer.src_lang == source
        with pytest.raises(LanguageError, match="does not translate Thai"):
            translator.tag("tha-Thai")
        with pytest.raises(LanguageError, match="text of unknown language"):
            translator.tag(None)
    found = translator.translate(["guten Tag", "ja"], "deu-Latn")
    assert len(found) == 2 and all(isinstance(one.text, str) for one in found)
    assert translator.knows("deu-Latn") and translator.knows("tha-Thai") == translator.knows(None) == (not source)


def test_texts_of_a_language_that_a_model_does_not_know_have_no_translation(
    machine: Callable[..., Path], tmp_path: Path
) -> None:
    kept = Translations(make_translator(f"mt:{machine('__de__', '__en__')}", "cpu"), tmp_path)
    texts = [("ja", "deu-Latn"), ("ใช่", "tha-Thai"), ("tak", None)]
    summary = translate_all(texts, [kept])[str(kept.translator.spec)]
    assert summary.translated == 1 and summary.problems[UNKNOWN] == 2
    for online in (True, False):
        assert [one.problem for one in kept.get(texts[1:], online=online)] == [UNKNOWN, UNKNOWN]
    assert kept.path.read_text().count("\n") == 1


def test_a_text_is_cut_at_what_a_translation_model_can_read(machine: Callable[..., Path]) -> None:
    translator = make_translator(f"mt:{machine()}", "cpu")
    translator.model.tokenizer.model_max_length = 40
    long, longer = translator.translate(["a" * 40], "deu-Latn"), translator.translate(["a" * 400], "deu-Latn")
    assert long[0].text == longer[0].text[: len(long[0].text)]


@pytest.fixture(scope="module")
def pieces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sentencepiece model of made-up text, as opus-mt and m2m100 are published with."""
    import random

    import sentencepiece

    folder, draw = tmp_path_factory.mktemp("pieces"), random.Random(0)
    words = "guten tag morgen abend good day morning train late house".split()
    (folder / "text.txt").write_text("\n".join(" ".join(draw.choices(words, k=6)) for _ in range(200)))
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text.txt"),
        model_prefix=str(folder / "spm"),
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spm.model"))
    known = ["<s>", "<pad>", "</s>", "<unk>", *map(model.id_to_piece, range(model.get_piece_size()))]
    vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(known))}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    return folder


@pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
def test_the_tokenizers_that_translation_models_are_published_with(pieces: Path, tmp_path: Path) -> None:
    from transformers import M2M100Tokenizer, MarianTokenizer

    model, vocabulary = str(pieces / "spm.model"), str(pieces / "vocab.json")
    M2M100Tokenizer(vocabulary, model).save_pretrained(tmp_path / "m2m100")
    m2m100 = make_translator(f"mt:{tmp_path / 'm2m100'}", "cpu")
    assert isinstance(m2m100, Seq2SeqTranslator)
    tokenizer: Any = m2m100.model.tokenizer
    assert m2m100.tag("deu-Latn") == {"forced_bos_token_id": tokenizer.get_lang_id("en")}
    assert tokenizer("guten tag")["input_ids"][0] == tokenizer.get_lang_id("de")
    assert all(map(m2m100.knows, ("nso-Latn", "ceb-Latn", "nob-Latn"))) and not m2m100.knows("nde-Latn")
    MarianTokenizer(model, model, vocabulary).save_pretrained(tmp_path / "marian")
    marian = make_translator(f"mt:{tmp_path / 'marian'}", "cpu")
    assert isinstance(marian, Seq2SeqTranslator)
    assert marian.tag(None) == {} and marian.knows(None)


def test_references_are_looked_up(workdir: Path, write_text: Callable[..., Path]) -> None:
    write_text(workdir / "text", 5)
    translator = make_translator("reference:own:text")
    german, english = ((workdir / "text" / f"{one}.txt").read_text().splitlines() for one in ("deu", "eng"))
    found = translator.translate([german[3], "nothing like it"], "deu-Latn")
    assert found[0].text in english and found[1].text == ""
    assert translator.translate([german[3]], "tha-Thai")[0].text == ""
    kept = Translations(translator, workdir)
    assert [one.problem for one in kept.get([("nothing like it", "deu-Latn")], online=False)] == ["empty"]
    assert not kept.path.exists()


def test_corpora_are_joined_and_corrupted_references_differ(workdir: Path, write_text: Callable[..., Path]) -> None:
    for seed, name in enumerate(("text", "more")):
        write_text(workdir / name, 30, seed=seed)
    for name in ("text", "more"):
        foreign, english = ((workdir / name / f"{one}.txt").read_text().splitlines() for one in ("deu", "eng"))
        table = dict(zip(foreign[::-1], english[::-1], strict=True))
        both = make_translator("reference:own:text+own:more").translate(foreign, "deu-Latn")
        assert all(one.text == table[text] for one, text in zip(both, foreign, strict=True) if len(text.split()) > 2)
        foreign, english = list(table), list(table.values())
    worse = [one.text for one in make_translator("corrupted:own:more").translate(foreign, "deu-Latn")]
    assert all(one and one != other for one, other in zip(worse, english, strict=True))
    assert set(worse) & set(english)  # another sentence
    assert worse == [one.text for one in make_translator("corrupted:own:more").translate(foreign, "deu-Latn")]
    assert worse != [one.text for one in make_translator("corrupted:own:more?seed=1").translate(foreign, "deu-Latn")]
    assert make_translator("corrupted:own:more").identity != make_translator("reference:own:more").identity


def test_files_are_looked_up_by_text_and_language(tmp_path: Path) -> None:
    path = tmp_path / "made.jsonl"
    rows = [
        {"text": "gift", "translation": "poison", "lang": "de"},
        {"text": "gift", "translation": "married", "lang": "swe-Latn"},
        {"text": "tak", "translation": "thanks"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    translator = make_translator(f"file:{path}")
    found = [translator.translate(["gift"], one)[0].text for one in ("deu-Latn", "swe-Latn", "dan-Latn")]
    assert found == ["poison", "married", ""]
    assert translator.translate(["tak"], "dan-Latn")[0].text == "thanks"
    for bad in (
        '{"text": "a"}',
        '{"text": "a", "translation": null}',
        '{"text": 1, "translation": "b"}',
        "[" * 100_000,
    ):
        path.write_text(f"{bad}\n")
        with pytest.raises(DataError, match=r"made\.jsonl, line 1"):
            make_translator(f"file:{path}").translate(["a"], None)
    with pytest.raises(DataError, match="there is no file"):
        make_translator("file:nowhere.jsonl")
