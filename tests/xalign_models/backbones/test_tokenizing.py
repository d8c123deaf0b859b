"""Patterns of published tokenizers pass; those with exponentially many ways to match are refused."""

from __future__ import annotations

import base64
import json
import random
import shutil
import time

import pytest
from tokenizers import Regex, pre_tokenizers

from xalign_models.assets import Inspected
from xalign_models.backbones.tokenizing import MOST_WAYS, check_tokenizer, ways_to_match
from xalign_models.errors import ModelError, without_panic
from xalign_models.files import walk

PUBLISHED = (
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}]?[\p{Lu}\p{M}]*[\p{Ll}\p{M}]+(?i:'s|'t)?|\s*[\r\n]+|\s+",
    r" {2,}",
    r" ?[^(\s|[.,!?…。，、।۔،])]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+",
    r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
)
ENDLESS = ("(a+)+$", "(a|a)*b", "(a|aa)+$", "((a*)*)*b", "(?:a+){2,}", "a*a*a*a*a*b", "(a+){1,9999}x", r"(.+)\1+",
           "a?" * 30 + "!", "(?:a{1,9}){1,9}!", "a*a*!", "a+.*a+!", "a{1,3}+!", "(?x)a{1,9} +!", r"\c[a+b+a+a+]!",
           "(.*x)?.*!", "a*a{900}!", "a*" + "a" * 900, "a*(?i)x|.*y", "(?<a>a|b)\\g<a>", "[a[b[c]]]+!", "[]a+a+a+]",
           "a)b+(c", "(?#(", "(",
           "((" * 5000, "(?:(?:(?:){999}){999}){999}")  # fmt: skip


@pytest.mark.parametrize("pattern", PUBLISHED)
def test_a_published_pattern_is_safe(pattern):
    assert ways_to_match(pattern) <= MOST_WAYS / 4


@pytest.mark.parametrize("pattern", ENDLESS)
def test_a_pattern_with_many_ways_to_match_is_not(pattern):
    assert ways_to_match(pattern) > MOST_WAYS


@pytest.mark.slow
def test_an_accepted_pattern_ends_on_any_text():
    """Random patterns on text that many of them match in many ways: Onigmo panics after 10 million attempts."""
    draw = random.Random(0)
    parts = ["a", ".", r"\s", "[ab]", "b", "(?:", ")", "|", "?", "*", "+", "{1,3}", "{2}", "!", "$", "(?=", "(?!"]
    accepted = 0
    for _ in range(8000):
        pattern = "".join(draw.choices(parts, k=draw.randint(2, 9)))
        if ways_to_match(pattern) > MOST_WAYS:
            continue
        try:
            split = pre_tokenizers.Split(Regex(pattern), "isolated")
        except Exception:
            continue
        accepted += 1
        start = time.process_time()
        for text in ("a" * 1000, "ab" * 500, " " * 1000):
            split.pre_tokenize_str(text)
        assert time.process_time() - start < 2, pattern
    assert accepted > 500


def chart(longest: int) -> dict[str, str]:
    content = (8).to_bytes(4, "little") + bytes(8) + b"a\0" + b"x" * longest + b"\0"
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(content).decode()}


def test_the_longest_replacement_of_a_chart_counts():
    check_tokenizer(walk({"normalizer": chart(33)}), "tokenizer.json")
    with pytest.raises(ModelError, match=r"one character into up to 1e\+05"):
        check_tokenizer(walk({"normalizer": chart(100_000)}), "tokenizer.json")


def test_the_growths_of_a_sequence_multiply():
    double = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    check_tokenizer(walk({"normalizer": {"normalizers": [double] * 6}}), "tokenizer.json")
    with pytest.raises(ModelError, match="one character into up to 128"):
        check_tokenizer(walk({"normalizer": {"normalizers": [double] * 7}}), "tokenizer.json")


def test_a_tokenizer_of_a_trusted_model_may_search_as_it_likes(tiny_model, tmp_path):
    from xalign_models.backbones.policy import check

    folder = shutil.copytree(tiny_model, tmp_path / "model")
    content = json.loads((folder / "tokenizer.json").read_text())
    content["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"Regex": "(a+)+$"},
        "behavior": "Isolated",
        "invert": False,
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))
    with pytest.raises(ModelError, match="--trust-remote-code"):
        check(Inspected(folder))
    check(Inspected(folder), trust=True)


@pytest.mark.parametrize("content", [b"aGVsbG8= 0\nIQ== 1\n", b"\x0a\x03\x0a\x01a\x1a\x00"])
def test_a_list_of_tiktoken_and_a_chart_of_nothing_pass(tiny_model, tmp_path, content):
    from xalign_models.backbones.policy import check

    folder = shutil.copytree(tiny_model, tmp_path / "model")
    (folder / "tokenizer.model").write_bytes(content)
    check(Inspected(folder))


def test_a_panic_of_a_library_is_an_error():
    split = pre_tokenizers.Split(Regex("(?:a{1,9}){1,9}!"), "isolated")
    with pytest.raises(ModelError, match="retry-limit"), without_panic():
        split.pre_tokenize_str("a" * 1000)
    with pytest.raises(KeyboardInterrupt), without_panic():
        raise KeyboardInterrupt
