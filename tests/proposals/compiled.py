"""Compiled candidates for sources, each written in a process of its own, as the sandboxed child does it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from gpu_runner.core.probe import probe_assignments

EXAMPLES = Path(__file__).parents[2] / "examples"

_CHILD = """
import json, sys
from gpu_runner.proposals.child.compiler import compile_source
requests = json.load(sys.stdin)
print(json.dumps({name: compile_source(request) for name, request in requests.items()}))
"""


def example(name: str) -> str:
    return next(EXAMPLES.glob(f"*/{name}.py")).read_text()


def request(source: str, track: str = "own_kernels", *variants: str) -> dict[str, Any]:
    probes = probe_assignments(source)
    return {
        "source": source,
        "probe": probes[0] if probes else None,
        "track": track,
        "precision": "ieee",
        "variants": list(variants or ("default",)),
        "begin_within_s": 200.0,
    }


def compiled(requests: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The child's answer to every request, by its name."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(EXAMPLES.parent)},
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


COMPARE = """
from torch.utils._pytree import tree_flatten
from gpu_runner.core.probe import probe_assignments, with_assignments
errors = {}
for name in json.load(open("names.json")):
    source = open(f"{name}.task.py").read()
    probes = probe_assignments(source)
    open("task.py", "w").write(with_assignments(source, probes[0]) if probes else source)
    task, candidate = load("task.py"), load(f"{name}.py")
    model, new = task.Model(*task.get_init_inputs()), candidate.ModelNew(*task.get_init_inputs())
    new.load_state_dict(model.state_dict())
    inputs = task.get_inputs()
    copies = [tensor.clone() for tensor in inputs]
    got, expected = new(*copies), model(*inputs)
    (got, form), (expected, wanted) = tree_flatten(got), tree_flatten(expected)
    assert form == wanted, f"{name} returns {form}, not {wanted}"
    pairs = [(a, b) for a, b in zip(got, expected, strict=True) if torch.is_tensor(b)]
    pairs += [*zip(copies, inputs, strict=True), *zip(new.buffers(), model.buffers(), strict=True)]
    errors[name] = max(error(a, b) if a.numel() and not torch.equal(a, b) else 0.0 for a, b in pairs)
print(json.dumps(errors))
"""
"""Errors of candidates against their tasks at probe size, in units of the result's rms; for `run_script`.

Of the outputs, and of inputs and buffers as the call leaves them.
"""


def files(candidates: dict[str, tuple[str, str]]) -> dict[str, str]:
    """The files that COMPARE reads, from name to (task, candidate)."""
    texts = {"names.json": json.dumps(list(candidates))}
    for name, (task, candidate) in candidates.items():
        texts |= {f"{name}.task.py": task, f"{name}.py": candidate}
    return texts
