"""A model that writes, alone or with LiRA's choice of a translation beside each question."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from tasks.reasoning.answers import final_number
from tasks.reasoning.mgsm import Problem
from tasks.reasoning.xcsqa import Question
from xalign_models.backbones import loading
from xalign_models.corpora import ENGLISH
from xalign_models.generation.language_model import LanguageModel
from xalign_models.models.names import find_spec
from xalign_models.training.lira.module import LiRA

MOST_TOKENS = 320
BATCH = 32
SOLVE = (
    "Solve the problem step by step in English. End with a line that says Answer: and the number alone.\n\n"
    "Problem: {question}"
)
"""For models that were trained to chat."""
SHOTS = (
    (
        "A shelf has 4 boards with 6 books each. Mia takes 5 books home. How many books are left?",
        "There are 4 * 6 = 24 books. 24 - 5 = 19 are left.",
        19,
    ),
    (
        "Tom walks 3 km each day from Monday to Friday, and twice as far on Saturday. How many km does he walk in all?",
        "From Monday to Friday he walks 5 * 3 = 15 km, on Saturday 2 * 3 = 6 km. 15 + 6 = 21 in all.",
        21,
    ),
)
"""Our own examples, for models that only continue texts."""
CHOOSE = "Answer with the letter of the best choice alone.\n\nQuestion: {question}\n{choices}\nAnswer:"


class Solver:
    """Writes answers.

    Args:
        name: Of a causal language model: backbone, asset, directory or hub id; or the directory of a LiRA, whose
            English model answers, with the translation that the actor chooses beside each question.
        device: cpu, cuda or mps.
    """

    def __init__(self, name: str, device: str | None = None) -> None:
        self.lira: LiRA | None = None
        path = Path(name)
        if path.is_dir() and loading.has_own_modules(path):
            from xalign_models.training.lira.run import open_lira

            self.lira = open_lira(path).to(loading.pick_device(device))
            self.name, spec = path.resolve().name, self.lira.backbones["english"]
        else:
            spec = find_spec(name).backbone
            self.name = spec.name
        self.model = LanguageModel(spec.model, spec.revision, device)

    def questions(self, questions: Sequence[str], language: str) -> list[str]:
        """What the model is asked: a question, and under it the chosen translation if there is one."""
        if self.lira is None or language == ENGLISH:
            return list(questions)
        found = self.lira.source(questions, [language] * len(questions))
        best = self.lira.actor_choice(questions, found).log_probabilities.argmax(dim=1).tolist()
        usable = found.mask.any(dim=1).tolist()
        return [
            f"{question}\n(In English: {found.texts[row][best[row]]})" if usable[row] else question
            for row, question in enumerate(questions)
        ]

    def solve(self, problems: Sequence[Problem], language: str) -> list[bool]:
        """Whether each problem's answer ends with its number."""
        asked = self.questions([one.question for one in problems], language)
        right = []
        for start in range(0, len(asked), BATCH):
            written = self.model.write(
                [self.prompt(one) for one in asked[start : start + BATCH]],
                max_new_tokens=MOST_TOKENS,
                stop=() if self.model.tokenizer.chat_template else ("\n\n", "Problem:"),
            )
            right += [
                final_number(one.text) == problem.answer
                for one, problem in zip(written, problems[start : start + BATCH], strict=True)
            ]
        return right

    def prompt(self, question: str) -> str:
        """A problem as the model was trained to be asked."""
        if self.model.tokenizer.chat_template:
            return self.model.chat(SOLVE.format(question=question))
        shown = [f"Problem: {one}\n{steps} Answer: {number}\n" for one, steps, number in SHOTS]
        return "\n".join([*shown, f"Problem: {question}\n"])

    def choose(self, questions: Sequence[Question], language: str) -> list[bool]:
        """Whether the likeliest letter after each question is the right one."""
        stems = self.questions([one.stem for one in questions], language)
        right = []
        for start in range(0, len(stems), BATCH):
            batch = questions[start : start + BATCH]
            prompts = [
                self.model.chat(
                    CHOOSE.format(
                        question=stem, choices="\n".join(f"{letter}. {text}" for letter, text in one.choices.items())
                    )
                )
                for stem, one in zip(stems[start : start + BATCH], batch, strict=True)
            ]
            letters = sorted({letter for one in batch for letter in one.choices})
            chances = self.model.next_of(
                prompts, letters if self.model.tokenizer.chat_template else [f" {one}" for one in letters]
            )
            there = torch.tensor([[letter in one.choices for letter in letters] for one in batch])
            best = chances.masked_fill(~there, -1).argmax(dim=1).tolist()
            right += [letters[place] == one.answer for place, one in zip(best, batch, strict=True)]
        return right
