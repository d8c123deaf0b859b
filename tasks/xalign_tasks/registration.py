"""Registers the tasks, benchmarks and analyses of this package by their import paths, so that lists import none."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict

from xalign_models.corpora.own_text import TASK, own_paths, own_task
from xalign_models.errors import DataError
from xalign_models.plugins import TASKS, Part, register
from xalign_tasks.facts import FACTS
from xalign_tasks.lusifer_benchmark import ALL, data_sets, fourteen


def _register_task(name: str, kind: str, place: str = "") -> None:
    """Register a task with the facts of a kind of task."""
    facts = asdict(FACTS[kind])
    own_place = facts.pop("place")
    register.task(f"xalign_tasks.{place or own_place}", name, **facts)


for _name in FACTS:
    _register_task(_name, _name)


def _own_tasks() -> None:
    """Register a task for each of the user's own texts whose name is not ``own``."""
    names: Iterable[str] = ()
    with suppress(DataError):  # a run that needs them reports the error
        names = own_paths()
    for name in names:
        if own_task(name) != TASK:
            _register_task(own_task(name), TASK, f"own_parallel:{TASK}_{name}")


TASKS.before_look(_own_tasks)

register.benchmark(
    "XAlign(parallel)",
    "FloresPrecision NTREXPrecision Tatoeba36 STS17CrossLingual LanguageIdentity Orthogonality ProductSearchStandIn "
    "XQuAD-R SIB200ZeroShot TweetSentimentZeroShot".split(),
)
register.benchmark("XAlign(LiRA)", ("MLQARetrieval", "BelebeleRetrieval", "STS22", "LazRetrieval"))
register.benchmark("XAlign(embedded)", ("GettextPrecision",))
for _name, _members in data_sets().items():
    register.benchmark(
        _name,
        [Part(data.task, data.subsets, (data.split,)) for data in _members],
        f"{len(_members)} data sets of the LUSIFER paper",
        "xalign_tasks.lusifer_benchmark:board",
    )
_all_data = [data for _members in fourteen().values() for data in _members]
register.benchmark(
    ALL,
    [
        Part(
            _task,
            tuple(dict.fromkeys(subset for data in _all_data if data.task == _task for subset in data.subsets)),
            tuple(dict.fromkeys(data.split for data in _all_data if data.task == _task)),
        )
        for _task in dict.fromkeys(data.task for data in _all_data)
    ],
    f"{len({data.name for data in _all_data})} data sets of the LUSIFER paper in {len(fourteen())} languages",
    "xalign_tasks.lusifer_benchmark:overview",
)

_ANALYSES = {
    "isomorphism": "P@k of every pair of languages before and after a rotation, from results of `xalign run`.",
    "one-target": "LAReQA's limit-to-one-target heat maps of XQuAD-R, from results of `xalign run`.",
    "measures": "All measures of the tasks that `xalign run` has scored, by direction.",
    "linear-mapping": "Gains of linear maps from and to English, and their distance from rotations.",
    "lsar-families": "Histograms of the components that LSAR removes, by language family.",
    "lsar-syntax": "Correlation of the components that LSAR removes with URIEL's syntactic features.",
    "lsar-ranks": "Tatoeba accuracy by the number of directions that LSAR or LIR removes.",
    "lsar-layers": "Tatoeba accuracy by layer, before and after each alignment.",
    "offset-stability": "Cosines between a language's offsets to English on different corpora, by prompt.",
    "pivot-layers": "MEXA, P@1, linear CKA and RSA with English by layer, on FLORES-200.",
    "discrimination": "How often a translation beats a sentence of another meaning.",
    "sensitivity": "Change of a score with the prompt, truncation and number format, and of the models' order.",
    "rkhs": "Norms of mean input embeddings: the surrogate of the constant C of LiRA's bound.",
    "lipschitz": "Distance that an embedding moves when its text is edited slightly.",
    "deviation": "LiRA's similarity, loss, errors and bounds over the epochs of stage 1.",
    "selection": "How often LiRA's actor picks a reference among corruptions of it.",
    "translators": "How often LiRA's actor takes each translator.",
    "lengths": "Lengths of the texts of tasks, by side.",
    "mgsm": "Accuracy of generative models on MGSM.",
    "x-csqa": "Accuracy of generative models on X-CSQA.",
    "migration": "Retrieval that a new model's queries keep on an old model's index.",
    "choices": "Alignments that `xalign recommend` chooses under five divisions of the text into folds.",
    "atlas": "How even published models are across languages, from mteb's public results.",
    "scatter": "A multilingual pool in the plane (PCA, t-SNE), before and after alignment.",
}
_SHARED_FILE = {
    "lsar-families": "lsar_subspace:analyse_families",
    "lsar-syntax": "lsar_subspace:analyse_syntax",
    "lsar-ranks": "lsar_accuracy:analyse_ranks",
    "lsar-layers": "lsar_accuracy:analyse_layers",
    "mgsm": "reasoning:analyse_mgsm",
    "x-csqa": "reasoning:analyse_xcsqa",
}

for _name, _description in _ANALYSES.items():
    _place = _SHARED_FILE.get(_name, f"{_name.replace('-', '_')}:analyse")
    register.analysis(_name, _description, f"xalign_tasks.analyses.{_place}")
