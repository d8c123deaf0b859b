"""Registers the tasks, benchmarks and analyses of this package by their import paths, so that lists import none.

The facts for lists are here and in each task's own metadata; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from xalign_models.corpora.own_text import own_paths, own_task
from xalign_models.errors import DataError
from xalign_models.plugins import TASKS, Part, register
from xalign_tasks.lusifer_benchmark import ALL, data_sets, fourteen

_OWN = "P@1, P@5 and P@10 of finding a sentence's translation in parallel text of your own."

for _place, _name, _score, _languages, _subsets, _description in (
    ("flores:FloresPrecision", "FloresPrecision", "precision_at_1", 196, 41412,
     "P@1, P@5 and P@10 of finding a sentence's translation among the 1,012 of FLORES-200's devtest."),
    ("ntrex:NTREXPrecision", "NTREXPrecision", "precision_at_1", 120, 14762,
     "P@1, P@5 and P@10 of finding a sentence's translation among the 1,997 of NTREX-128."),
    ("tatoeba36:Tatoeba36", "Tatoeba36", "precision_at_1", 37, 72,
     "Finding a sentence's translation among the up to 1,000 of LASER's Tatoeba test, 36 languages."),
    ("sts17:STS17CrossLingual", "STS17CrossLingual", "cosine_spearman", 4, 6,
     "Semantic similarity of sentence pairs within and across Arabic, English, Spanish and Turkish."),
    ("language_identity:LanguageIdentity", "LanguageIdentity", "one_minus_nmi", 37, 2,
     "How little k-means clusters of a multilingual pool tell about its languages (1 - NMI)."),
    ("orthogonality:Orthogonality", "Orthogonality", "rotation", 43, 42,
     "How far English and each language are a rotation of each other, and what a linear map gains."),
    ("isomorphism:IsomorphismStudy", "IsomorphismStudy", "after_precision_at_5", 111, 12432,
     "P@1, P@5 and P@10 on FLORES-200 before and after a rotation fitted on NTREX-128, for every ordered pair."),
    ("isomorphism:IsomorphismStudyRaw", "IsomorphismStudyRaw", "after_precision_at_5", 111, 12432,
     "IsomorphismStudy, fitted on rows of their own lengths."),
    ("lareqa:XQuADR", "XQuAD-R", "map", 11, 11,
     "Questions in eleven languages; their answers in all of them are in one pool of 13,014 sentences."),
    ("lareqa:XQuADRAsPublished", "XQuAD-R-as-published", "map", 11, 11,
     "XQuAD-R, each sentence encoded with its paragraph, dot products of raw vectors."),
    ("lareqa:MLQAR", "MLQA-R", "map", 7, 7,
     "Questions in seven languages; their two to four answers are in one pool of 20,534 sentences."),
    ("zero_shot:SIB200ZeroShot", "SIB200ZeroShot", "accuracy", 196, 204,
     "Topics of FLORES-200's sentences, by a classifier that is trained on the English ones alone."),
    ("zero_shot:TweetSentimentZeroShot", "TweetSentimentZeroShot", "accuracy", 8, 8,
     "Sentiment of tweets in eight languages, by a classifier that is trained on the English ones alone."),
    ("zero_shot:AmazonReviewsZeroShot", "AmazonReviewsZeroShot", "accuracy", 4, 4,
     "Good or bad reviews in four languages, by a classifier that is trained on the English ones alone."),
    ("zero_shot:AmazonStarsZeroShot", "AmazonStarsZeroShot", "accuracy", 6, 6,
     "Stars of reviews in six languages, by a classifier that is trained on English ones alone."),
    ("product_search:LazRetrieval", "LazRetrieval", "ndcg_at_10", 7, 7,
     "De-identified shopping queries of seven locales and the product titles they led to."),
    ("product_search:ProductSearchStandIn", "ProductSearchStandIn", "ndcg_at_10", 8, 7,
     "CLDR names and keywords in seven languages as queries for English names of product-like things."),
    ("gettext:GettextPrecision", "GettextPrecision", "precision_at_1", 12, 132,
     "P@1, P@5 and P@10 of finding the translation of an interface string of Django; half of the strings."),
    ("own_parallel:OwnParallel", "OwnParallel", "precision_at_1", 2, 2, _OWN),
):  # fmt: skip
    register.task(
        f"xalign_tasks.{_place}", _name, score=_score, languages=_languages, subsets=_subsets, description=_description
    )


def _own_tasks() -> None:
    """Register a task for each of the user's own texts whose name is not ``own``."""
    names: Iterable[str] = ()
    with suppress(DataError):  # a run that needs them reports the error
        names = own_paths()
    for name in names:
        if own_task(name) not in TASKS.known():
            place = f"xalign_tasks.own_parallel:OwnParallel_{name}"
            facts = {"score": "precision_at_1", "languages": 2, "subsets": 2, "description": _OWN}
            register.task(place, own_task(name), **facts)


TASKS.before_look(_own_tasks)

register.task(
    "xalign_tasks.mteb_bitext:NTREXBitextMining",
    "NTREXBitextMining",
    score="f1",
    languages=119,
    subsets=1916,
    description="mteb's NTREXBitextMining on the publisher's text, each language encoded once.",
)

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
