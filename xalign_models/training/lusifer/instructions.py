"""Prefixes of a text: the instruction, followed by ``Candidate:`` if the text is a passage."""

from __future__ import annotations


def query_prompt(instruction: str) -> str:
    r"""``{instruction}.\n``, with one full stop; nothing without an instruction."""
    return f"{instruction.rstrip().rstrip('.')}.\n" if instruction.strip() else ""


def passage_prompt(instruction: str) -> str:
    r"""``{instruction}. Candidate:\n``; nothing without an instruction."""
    return f"{instruction.rstrip().rstrip('.')}. Candidate:\n" if instruction.strip() else ""
