"""Registries of alignments, backbones, corpora, tasks, benchmarks and analyses, and plug-ins that add to them.

A plug-in is a Python file or module that registers values when it is imported::

    from xalign_models import register

    @register.alignment
    class Whitening(UnpairedAlignment): ...

Plug-ins are found by the entry-point group ``xalign.plugins`` of installed packages, by ``XALIGN_PLUGINS`` (comma-
separated files and modules) and by the option ``--plugin``. The built-in tasks, benchmarks and analyses are a plug-in
too. A value may be given as ``"module:attr"``, which is imported at its first use.
"""

from xalign_models.plugins.kinds import (
    ALIGNMENTS,
    ANALYSES,
    BACKBONES,
    BENCHMARKS,
    CORPORA,
    MODULES,
    SOURCES,
    TASKS,
    Benchmark,
    Part,
    register,
    task_facts,
)
from xalign_models.plugins.loading import PACKAGE, add_plugin, code_digest, load_plugins, sources
from xalign_models.plugins.registry import Entry, Registry, did_you_mean

__all__ = [
    "ALIGNMENTS",
    "ANALYSES",
    "BACKBONES",
    "BENCHMARKS",
    "CORPORA",
    "MODULES",
    "PACKAGE",
    "SOURCES",
    "TASKS",
    "Benchmark",
    "Entry",
    "Part",
    "Registry",
    "add_plugin",
    "code_digest",
    "did_you_mean",
    "load_plugins",
    "register",
    "sources",
    "task_facts",
]
