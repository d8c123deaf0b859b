"""Registers this package's tasks, benchmarks and analyses by their import paths, so that lists import none."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from xalign_models.corpora.own_text import own_paths, own_task
from xalign_models.errors import DataError
from xalign_models.plugins import TASKS, Part, register
from xalign_tasks.facts import FACTS, METADATA, rows
from xalign_tasks.lusifer_benchmark import ALL, data_sets, fourteen


def _register_task(name: str, kind: str, place: str = "") -> None:
    facts = asdict(FACTS[kind])
    own_place = facts.pop("place")
    about = {"type": "BitextMining", "domains": [], "reference": None} | METADATA.get(kind, {})
    facts |= {key: about[key] for key in ("type", "domains", "reference")}
    register.task(f"xalign_tasks.{place or own_place}", name, **facts)


for _name in FACTS:
    _register_task(_name, _name)


def _own_tasks() -> None:
    """Register a task for each of the user's own texts whose name is not ``own``."""
    places: Mapping[str, tuple[str, Path]] = {}
    with suppress(DataError):  # a run that needs them reports the error
        places = own_paths()
    for name, (_, path) in places.items():
        if name != "own":
            kind, _, text = (task := own_task(name, path)).partition("-")
            _register_task(task, kind, f"{FACTS[kind].place}_{text}")


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

for _name, _place, _options, _description in rows("analyses.tsv"):
    register.analysis(_name, _description, f"xalign_tasks.analyses.{_place}", _options.split())
