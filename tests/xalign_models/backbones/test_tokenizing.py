"""Patterns of published tokenizers pass; those with exponentially many ways to match are refused."""

from __future__ import annotations

import base64

import pytest

from xalign_models.backbones.tokenizing import check_tokenizer, is_safe_pattern
from xalign_models.errors import ModelError

PUBLISHED = (
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"[^\r\n\p{L}]?[\p{Lu}\p{M}]*[\p{Ll}\p{M}]+(?i:'s|'t)?|\s*[\r\n]+|\s+",
    r" {2,}",
    r" ?[^(\s|[.,!?…。，、।۔،])]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+",
    r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
)
ENDLESS = ("(a+)+$", "(a|a)*b", "(a|aa)+$", "((a*)*)*b", "(?:a+){2,}", "a*a*a*a*a*b", "(a+){1,9999}x", r"(.+)\1+")


@pytest.mark.parametrize("pattern", PUBLISHED)
def test_a_published_pattern_is_safe(pattern):
    assert is_safe_pattern(pattern)


@pytest.mark.parametrize("pattern", ENDLESS)
def test_a_pattern_with_many_ways_to_match_is_not(pattern):
    assert not is_safe_pattern(pattern)


def chart(longest: int) -> dict[str, str]:
    content = (8).to_bytes(4, "little") + bytes(8) + b"a\0" + b"x" * longest + b"\0"
    return {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(content).decode()}


def test_the_longest_replacement_of_a_chart_counts():
    check_tokenizer({"normalizer": chart(33)}, "tokenizer.json")
    with pytest.raises(ModelError, match=r"up to 1e\+05 characters of one"):
        check_tokenizer({"normalizer": chart(100_000)}, "tokenizer.json")


def test_the_growths_of_a_sequence_multiply():
    double = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
    check_tokenizer({"normalizer": {"normalizers": [double] * 6}}, "tokenizer.json")
    with pytest.raises(ModelError, match="up to 128 characters of one"):
        check_tokenizer({"normalizer": {"normalizers": [double] * 7}}, "tokenizer.json")
