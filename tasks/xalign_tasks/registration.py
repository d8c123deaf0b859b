"""Registers the tasks, benchmarks and analyses of this package by their import paths, so that lists import none."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from xalign_models.corpora.own_text import TASK, own_paths, own_task
from xalign_models.errors import DataError
from xalign_models.plugins import TASKS, Part, register
from xalign_tasks.facts import FACTS
from xalign_tasks.lusifer_benchmark import ALL, data_sets, fourteen


def _register_task(name: str, kind: str, place: str = "") -> None:
    """Register a task with the facts of a kind of task."""
    facts = FACTS[kind]
    register.task(
        f"xalign_tasks.{place or facts.place}",
        name,
        score=facts.score,
        languages=facts.languages,
        subsets=facts.subsets,
        description=facts.description,
    )


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
    (
        "FloresPrecision",
        "NTREXPrecision",
        "Tatoeba36",
        "STS17CrossLingual",
        "LanguageIdentity",
        "Orthogonality",
        "ProductSearchStandIn",
        "XQuAD-R",
        "SIB200ZeroShot",
        "TweetSentimentZeroShot",
    ),
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

for _name, _description, _place in (
    ("isomorphism", "P@k of every pair before and after a rotation, by `xalign run`.", "isomorphism:analyse"),
    ("one-target", "LAReQA's limit-to-one-target heat maps of XQuAD-R, by `xalign run`.", "one_target:analyse"),
    ("measures", "All measures of tasks that `xalign run` has scored, by direction.", "measures:analyse"),
    (
        "linear-mapping",
        "What linear maps from and to English gain, and their orthogonality.",
        "linear_mapping:analyse",
    ),
    ("lsar-families", "What LSAR removes, by language family: histograms.", "lsar_families:analyse"),
    ("lsar-syntax", "Whether what LSAR removes is syntax: correlation with URIEL.", "lsar_syntax:analyse"),
    ("lsar-ranks", "Tatoeba accuracy by the number of directions that LSAR or LIR removes.", "lsar_ranks:analyse"),
    ("lsar-layers", "Tatoeba accuracy by layer, before and after each alignment.", "lsar_layers:analyse"),
    ("pivot-layers", "MEXA, P@1, linear CKA and RSA with English, by layer, on FLORES-200.", "pivot_layers:analyse"),
    (
        "discrimination",
        "Whether a translation beats a sentence of another meaning.",
        "discrimination:analyse",
    ),
    ("sensitivity", "What prompt, truncation and precision change, and whose order.", "sensitivity:analyse"),
    ("rkhs", "Norms of mean input embeddings: the surrogate of the constant C of LiRA's bound.", "rkhs:analyse"),
    ("lipschitz", "How far an embedding moves when its text is edited a little.", "lipschitz:analyse"),
    ("deviation", "LiRA's similarity, loss, errors and bounds over the epochs of stage 1.", "deviation:analyse"),
    ("selection", "Whether LiRA's actor picks a reference among corruptions of it.", "selection:analyse"),
    ("translators", "How often LiRA's actor takes which translator.", "translators:analyse"),
    ("lengths", "Lengths of the texts of tasks, by side.", "lengths:analyse"),
    ("mgsm", "Accuracy of models that write on MGSM.", "reasoning:analyse_mgsm"),
    ("x-csqa", "Accuracy of models that write on X-CSQA.", "reasoning:analyse_xcsqa"),
    ("migration", "What a new model's queries keep when an old model's index stays.", "migration:analyse"),
    ("choices", "What `xalign recommend` chooses by five divisions of the text into folds.", "choices:analyse"),
    ("atlas", "How even the languages of published models are, by mteb's public results.", "atlas:analyse"),
    ("scatter", "A multilingual pool in the plane (PCA, t-SNE), before and after.", "scatter:analyse"),
):
    register.analysis(_name, _description, f"xalign_tasks.analyses.{_place}")
