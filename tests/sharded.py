"""The command line, for ``accelerate launch``: FSDP over processes on the CPU, which accelerate has for GPUs alone."""

from __future__ import annotations

from accelerate import PartialState
from accelerate.utils import DistributedType

from xalign_models.cli import main

initialise = PartialState.__init__


def as_on_gpus(state, *arguments, **options):
    initialise(state, *arguments, **options)
    if state.distributed_type is DistributedType.MULTI_CPU:
        state.distributed_type = DistributedType.MULTI_GPU


PartialState.__init__ = as_on_gpus
main()
