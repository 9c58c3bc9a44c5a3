"""Tries the sandbox before anything of a user runs in it."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from functools import cache
from typing import Final

from gpu_runner.evaluation.children import Limits, Nursery, how_it_ended
from gpu_runner.evaluation.errors import RunnerError, SandboxMissing
from gpu_runner.evaluation.sandbox import Sandbox

ENTRY: Final = "gpu_runner.evaluation.child.escapes:main"
CHILD_VARIABLES: Final = ("HOME", "TMPDIR", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
ABSTRACT: Final = "kernel-foundry-self-test"


def self_test(sandbox: Sandbox) -> list[str]:
    """The escapes that succeeded, in words; empty is good. Takes a fraction of a second.

    Two children run one after the other, for the second may find what the first left. Never for
    mode "none": the attempts would be made on the host itself.
    """
    if sandbox.mode == "none":
        raise ValueError("there is no sandbox to test")
    with _listening() as (port, abstract), contextlib.closing(Nursery("plain", sandbox)) as nursery:
        request = {
            "visible": sandbox.visible(),
            "port": port,
            "abstract": abstract,
            "variables": [*nursery.variables, *CHILD_VARIABLES, "PWD", "LC_CTYPE"],
        }
        found: dict[str, list[str]] = {}
        for _ in range(2):
            with nursery.fork(ENTRY, limits=Limits(wall_s=60)) as child:
                child.channel.send(request)
                try:
                    answer, _ = child.channel.receive(60)
                except RunnerError as error:
                    raise SandboxMissing(f"the self-test: {how_it_ended(child)}") from error
            found |= answer["reached"]
    return [f"{name}: {', '.join(reached)}" for name, reached in found.items()]


@cache
def ensure_tight(sandbox: Sandbox) -> None:
    """Raise `SandboxMissing` if an escape succeeds; tried once per process."""
    escapes = self_test(sandbox)
    if escapes:
        raise SandboxMissing(
            f"the sandbox of this machine leaks, so nothing is run in it: {'; '.join(escapes)}."
            " `python -m gpu_runner doctor` shows more; --sandbox=none accepts the risk."
        )


@contextlib.contextmanager
def _listening() -> Iterator[tuple[int, str]]:
    """A port on loopback and an abstract socket that accept connections meanwhile."""
    name = f"{ABSTRACT}-{threading.get_native_id()}"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind("\0" + name)
        unix.listen()
        yield tcp.getsockname()[1], name
