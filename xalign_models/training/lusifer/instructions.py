"""Prefixes of a text: the instruction, followed by ``Candidate:`` if the text is a passage."""

import tomllib
from importlib.resources import files


def query_prompt(instruction: str) -> str:
    r"""``{instruction}.\n``, with one full stop; nothing without an instruction."""
    return f"{instruction.rstrip().rstrip('.')}.\n" if instruction.strip() else ""


def passage_prompt(instruction: str) -> str:
    r"""``{instruction}. Candidate:\n``; nothing without an instruction."""
    return f"{instruction.rstrip().rstrip('.')}. Candidate:\n" if instruction.strip() else ""


_SIMILAR = "Retrieve semantically similar text."
_QUESTION = "Given a question, retrieve passages that answer the question."
_INSTRUCTIONS: dict[str, list[str]] = tomllib.loads(
    files(__package__).joinpath("instructions.toml").read_text(encoding="utf-8")
)
"""The authors' instructions -> mteb's task types, and tasks whose instruction differs from that of their type."""

RELEASED = {
    "default": f"{_SIMILAR}.\n",
    "query": f"{_QUESTION}.\n",
    "document": f"{_QUESTION}. Candidate:\n",
    **{name: f"{instruction}.\n" for instruction, names in _INSTRUCTIONS.items() for name in names},
}
"""Prompts of the authors' own evaluation, by task name, task type, ``query`` / ``document`` or ``default``.

As in the authors' training, a full stop follows even an instruction that ends in one. Nine English retrieval and
reranking tasks, such as FEVER, have an instruction of their own there; here they have the one for questions.
"""
