"""bm25s, imported so that it leaves the GPU alone.

Where JAX is installed, bm25s starts it at import, and JAX takes three quarters of the device's memory from the evaluation.
It does not need it: without, it picks the best scores by numpy.
"""

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def _hidden(name: str) -> Iterator[None]:
    """Importing `name` fails meanwhile, as if it were not installed."""
    before = sys.modules.get(name)
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]
        if before is not None:
            sys.modules[name] = before


with _hidden("jax"):
    import bm25s

__all__ = ["bm25s"]
