"""A generative model, alone or with LiRA's chosen translation under each question."""

from collections.abc import Sequence
from pathlib import Path

import torch

from xalign_models.assets import Inspected
from xalign_models.backbones import policy
from xalign_models.corpora import ENGLISH
from xalign_models.device import pick_device
from xalign_models.generation.journal import batched
from xalign_models.generation.language_model import Completion, LanguageModel
from xalign_models.models.names import find_spec
from xalign_models.training.lira.module import LiRA
from xalign_models.training.lira.run import open_lira
from xalign_tasks.reasoning.mgsm import Problem, final_number
from xalign_tasks.reasoning.xcsqa import Question

MOST_TOKENS = 320
BATCH = 32
SOLVE = (
    "Solve the problem step by step in English. End with a line that says Answer: and the number alone.\n\n"
    "Problem: {question}"
)
"""Prompt of models with a chat template."""
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
"""Our own examples, for models that only continue text."""
CHOOSE = "Answer with the letter of the best choice alone.\n\nQuestion: {question}\n{choices}\nAnswer:"


class Solver:
    """Writes answers.

    Args:
        name: A causal language model: backbone, asset, directory or hub id; or the directory of a LiRA, whose English
            model answers, with the translation that the actor chooses under each question.
        device: cpu, cuda or mps.
    """

    def __init__(self, name: str, device: str | None = None) -> None:
        self.lira: LiRA | None = None
        path = Path(name)
        if path.is_dir() and policy.has_own_modules(Inspected(path)):
            self.lira = open_lira(path).to(pick_device(device))
            self.name, spec = path.resolve().name, self.lira.backbones["english"]
        else:
            spec = find_spec(name).backbone
            self.name = spec.name
        self.model = LanguageModel(spec.model, spec.revision, device)

    def questions(self, questions: Sequence[str], language: str) -> list[str]:
        """Questions, each with the chosen translation, if any, under it."""
        if self.lira is None or language == ENGLISH:
            return list(questions)
        candidates = self.lira.source(questions, [language] * len(questions))
        best = self.lira.actor_choice(candidates).log_probabilities.argmax(dim=1).tolist()
        usable = candidates.mask.any(dim=1).tolist()
        return [
            f"{question}\n(In English: {candidates.texts[row][best[row]]})" if usable[row] else question
            for row, question in enumerate(questions)
        ]

    def solve(self, problems: Sequence[Problem], language: str) -> list[bool]:
        """Whether each problem's answer ends with its number."""
        questions = self.questions([problem.question for problem in problems], language)
        written: list[Completion] = []
        for batch in batched(map(self.prompt, questions), BATCH):
            stop = () if self.model.chats else ("\n\n", "Problem:")
            written += self.model.write(batch, max_new_tokens=MOST_TOKENS, stop=stop)
        return [final_number(text) == problem.answer for (text, _), problem in zip(written, problems, strict=True)]

    def prompt(self, question: str) -> str:
        """The prompt of a problem, for a chat model or a plain one."""
        if self.model.chats:
            return self.model.chat(SOLVE.format(question=question))
        shown = [f"Problem: {shot}\n{steps} Answer: {number}\n" for shot, steps, number in SHOTS]
        return "\n".join([*shown, f"Problem: {question}\n"])

    def choose(self, questions: Sequence[Question], language: str) -> list[bool]:
        """Whether the most likely letter after each question is the right one."""
        stems = self.questions([question.stem for question in questions], language)
        right = []
        for batch in batched(zip(stems, questions, strict=True), BATCH):
            prompts = []
            for stem, question in batch:
                choices = "\n".join(f"{letter}. {text}" for letter, text in question.choices.items())
                prompts.append(self.model.chat(CHOOSE.format(question=stem, choices=choices)))
            letters = sorted({letter for _, question in batch for letter in question.choices})
            chances = self.model.next_of(prompts, letters if self.model.chats else [f" {letter}" for letter in letters])
            offered = torch.tensor([[letter in question.choices for letter in letters] for _, question in batch])
            best = chances.masked_fill(~offered, -1).argmax(dim=1).tolist()
            right += [letters[place] == question.answer for place, (_, question) in zip(best, batch, strict=True)]
        return right
