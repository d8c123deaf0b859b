"""What a function asks a device to do, counted without one."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

NO_LAUNCH = {"empty", "empty_like", "empty_strided", "new_empty", "_unsafe_view", "detach", "_local_scalar_dense"}
"""Operations that are no views and start nothing: they take memory, or see the same memory in another shape."""


class Operations(TorchDispatchMode):
    """Within it: the operations that launch a kernel, and the memory that each reads and writes.

    Inference mode hides what some operations consist of: use ``torch.no_grad()``.

    Attributes:
        calls: (operation, arguments) of each.
        bytes: What they read and write when nothing stays in a cache: arguments and results; of a table that rows are
            looked up in, the rows.
    """

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...]]] = []
        self.bytes = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if not func.is_view and func._schema.name.removeprefix("aten::") not in NO_LAUNCH:
            self.calls.append((func, args))
            read = (out, args[1]) if func is torch.ops.aten.embedding.default else (args, kwargs)
            tensors = [leaf for leaf in tree_leaves((read, out)) if isinstance(leaf, torch.Tensor)]
            self.bytes += sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        return out
