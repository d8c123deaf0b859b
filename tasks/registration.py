"""Our tasks, benchmarks and models, made known to mteb by name."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any

from tasks.flores import FloresPrecision
from tasks.gettext import GettextPrecision
from tasks.isomorphism import IsomorphismStudy, IsomorphismStudyRaw
from tasks.language_identity import LanguageIdentity
from tasks.lareqa import MLQAR, XQuADR
from tasks.lusifer_benchmark import benchmarks as lusifer_benchmarks
from tasks.ntrex import NTREXPrecision
from tasks.orthogonality import Orthogonality
from tasks.own_parallel import OwnParallel
from tasks.product_search import LazRetrieval, ProductSearchStandIn
from tasks.sts17 import STS17CrossLingual
from tasks.tatoeba36 import Tatoeba36
from tasks.with_languages import REPLACED
from tasks.zero_shot import AmazonReviewsZeroShot, AmazonStarsZeroShot, SIB200ZeroShot, TweetSentimentZeroShot

TASKS: tuple[type[Any], ...] = (
    FloresPrecision,
    NTREXPrecision,
    Tatoeba36,
    STS17CrossLingual,
    LanguageIdentity,
    Orthogonality,
    IsomorphismStudy,
    IsomorphismStudyRaw,
    XQuADR,
    MLQAR,
    SIB200ZeroShot,
    TweetSentimentZeroShot,
    AmazonReviewsZeroShot,
    AmazonStarsZeroShot,
    LazRetrieval,
    ProductSearchStandIn,
    GettextPrecision,
    OwnParallel,
)
BENCHMARKS: dict[str, tuple[str, ...]] = {
    "XAlign(parallel)": (
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
    "XAlign(LiRA)": ("MLQARetrieval", "BelebeleRetrieval", "STS22", "LazRetrieval"),
    "XAlign(embedded)": ("GettextPrecision",),
}
"""Names of benchmarks, as mteb knows them, and of their tasks."""


@cache
def register_with_mteb() -> None:
    """Make our tasks, benchmarks and models known to mteb's own functions by name; once in a process."""
    import mteb
    import mteb.benchmarks.benchmarks as known
    from mteb.benchmarks.benchmark import Benchmark

    from xalign_models.models.mteb import register_models

    get_tasks: Any = sys.modules["mteb.get_tasks"]
    for task in TASKS:
        if task.metadata.name not in get_tasks._TASKS_REGISTRY:
            get_tasks._TASKS_REGISTRY[task.metadata.name] = task
            get_tasks.TASK_LIST = (*get_tasks.TASK_LIST, task)
    get_tasks._SIMILAR_TASKS.update(get_tasks._create_similar_tasks(get_tasks.TASK_LIST))  # for zero-shot marks
    get_tasks._TASKS_REGISTRY.update({task.metadata.name: task for task in REPLACED})
    for name, members in BENCHMARKS.items():
        attribute = name.upper().replace("(", "_").replace(")", "")
        benchmark = Benchmark(name=name, tasks=mteb.get_tasks(tasks=list(members)), description=f"Tasks of {name}.")
        setattr(known, attribute, benchmark)
    for name, benchmark in lusifer_benchmarks().items():
        setattr(known, name, benchmark)
    get_benchmark: Any = sys.modules["mteb.benchmarks.get_benchmark"]
    get_benchmark._build_registry.cache_clear()
    get_benchmark._build_aliases_registry.cache_clear()
    register_models()
