"""Through which floating-point types a reference computes: float16 inside makes a float32 result no better than float16."""

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpu_runner.evaluation.child.compare import coarser


class Narrowest(TorchDispatchMode):
    """Keeps the coarsest type that any operation's result has while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.dtype: torch.dtype | None = None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else (result,):
            if isinstance(tensor, torch.Tensor) and tensor.dtype.is_floating_point:
                self.dtype = coarser(tensor.dtype, self.dtype)
        return result
