"""Run sources under Triton's interpreter, or compile them for a GPU, in a process of their own."""

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PREAMBLE = """
import importlib.util, json, os, sys
import torch
if os.environ.get("TRITON_INTERPRET"):
    from gpu_runner.evaluation.child import interpreter
    interpreter.install()

def load(path):
    spec = importlib.util.spec_from_file_location(path.replace(".", "_"), path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

def error(got, expected):
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return float("inf")
    return float((got.double() - expected.double()).abs().max() / expected.double().pow(2).mean().sqrt())

torch.manual_seed(0)
torch.set_grad_enabled(False)
"""

COMPILE_ONLY = """
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

class NoDevice:
    def get_current_target(self): return GPUTarget("cuda", 90, 32)
    def get_current_device(self): return 0
    def get_current_stream(self, device=None): return 0
    def get_active_torch_device(self): return torch.device("cpu")

triton.runtime.driver.set_active(NoDevice())
compiled = []
_run = JITFunction.run
def run(self, *args, grid, warmup, **kwargs):
    kernel = _run(self, *args, grid=grid, warmup=True, **kwargs)
    compiled.append([self.fn.__name__, kernel.metadata.shared, kernel.asm["ttir"].count("inputPrecision = tf32")])
    return kernel
JITFunction.run = run
"""


def run_script(
    body: str, folder: Path, sources: Mapping[str, str] | None = None, *, interpret: bool = True
) -> Any:
    """The JSON that a script prints last; `sources` are written beside it and may be given to its `load`."""
    for name, text in (sources or {}).items():
        (folder / name).write_text(text)
    script = folder / "script.py"
    script.write_text(PREAMBLE + ("" if interpret else COMPILE_ONLY) + textwrap.dedent(body))
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "TRITON_CACHE_DIR": str(folder / "cache"),
    }
    environment.pop("TRITON_INTERPRET", None)
    if interpret:
        environment["TRITON_INTERPRET"] = "1"
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        env=environment,
        cwd=folder,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
