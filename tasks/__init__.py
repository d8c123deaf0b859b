"""The evaluation protocols as mteb tasks: one protocol, one file."""

from tasks.registration import BENCHMARKS, TASKS, register_with_mteb

__all__ = ["BENCHMARKS", "TASKS", "register_with_mteb"]
