"""The compile gate and the modelled time: what a second player and the roofline say of a candidate."""

import ast
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpu_runner.core.findings import Evidence, Finding, Location, Severity, Source
from gpu_runner.core.source import Problem, parse
from gpu_runner.core.targets import Target
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.verdicts import Precision, Stage, Verdict
from gpu_runner.evaluation.child import failures, roofline
from gpu_runner.evaluation.child.arena import Arena, Deadlines
from gpu_runner.evaluation.child.compiling import CompiledKernel
from gpu_runner.evaluation.child.failures import Stop
from gpu_runner.evaluation.child.links import PlayerLink, PlayerLost
from gpu_runner.evaluation.child.memory import dtype_named
from gpu_runner.evaluation.protocol import (
    Compile,
    CompiledAll,
    Encoded,
    Failed,
    Load,
    Loaded,
    Model,
    Modelled,
    Placed,
    Ran,
)

SMALLEST_LITERAL = 16
MODEL_S = 240.0
"""For a full-size call over reserved memory; its sample may take two seconds of a processor a launch, however busy that is."""
MOST_WHOLE_BYTES = 1 << 27
MOST_WHOLE_PROGRAMS = 16_384
"""Up to here a full-size call is interpreted as a whole, if there is a reason to look: seconds to a minute."""
HALF = 0.5
WHOLE = 0.95
"""Share of bytes above which a sample of programs is taken to have touched all of them."""


class Compilation:
    """A candidate in a child that compiles and has no device; runs beside the interpreter.

    `start`, `proceed` and `finish` are called in this order; what goes wrong in between waits for `stop`.
    """

    def __init__(
        self, link: PlayerLink, spec: TaskSpec, task: Modelled, deadlines: Deadlines
    ) -> None:
        self._link = link
        self._spec = spec
        self._task = task
        self._deadlines = deadlines
        self._stop: Stop | None = None
        self._is_asked = False
        self._is_loaded = False
        self._kernel_count = 1
        self.kernels: list[CompiledKernel] = []
        self.notes: list[Finding] = []

    def start(self, source: str) -> None:
        request = Load(source=source, role="candidate", device="cpu", target=self._spec.target)
        with self._catching("import"):
            self._link.send(request)

    def proceed(self) -> None:
        """The interpreter's player has loaded it; so will this one, soon."""
        if self._stop is not None or self._is_asked:
            return
        with self._catching("import"):
            answer = self._link.answer(Loaded, self._deadlines.imports)
            if isinstance(answer, Failed):
                self._note(answer)
                return
            self._is_loaded = True
            self._kernel_count = max(1, len(answer.kernels))
            task = self._task
            request = Compile(
                target=self._spec.target,
                seed=0,
                init=task.init,
                init_places=task.init_places,
                inputs=task.inputs,
                places=task.places,
            )
            self._link.send(request)
            self._is_asked = True

    def finish(self) -> None:
        """Wait for the compiler."""
        self.proceed()
        if not self._is_asked or self._stop is not None or self.kernels:
            return
        with self._catching("compile"):
            allowed = self._deadlines.compile_start + self._deadlines.compile * self._kernel_count
            answer = self._link.answer(CompiledAll, allowed)
            if isinstance(answer, Failed):
                self._note(answer)
                return
            self.kernels = [CompiledKernel.from_json(raw) for raw in answer.kernels]

    def stop(self, arena: Arena) -> Stop | None:
        """Why the candidate fails this gate, if it does."""
        return self._stop or refused(self.kernels) or below_policy(self.kernels, arena)

    def close(self) -> None:
        self._link.close()

    def _note(self, failed: Failed) -> None:
        """Host code that fails here only is no verdict; the interpreter's player has the say."""
        self.notes.append(
            Finding(
                stage=Stage.COMPILE,
                kind="not_compiled",
                severity=Severity.WARNING,
                source=Source.COMPILER,
                title=f"not compiled at full size: {failed.error}: {failed.message}"[:300],
                location=Location(line=failed.line),
            )
        )

    def _catching(self, step: str) -> "_Catching":
        return _Catching(self, step)


@dataclass
class _Catching:
    """Keeps the end of the compiling player for later: a crashed compiler is a backend error."""

    owner: Compilation
    step: str

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        if not isinstance(error, PlayerLost):
            return False
        end = error.link.close()
        if self.step == "import" or (error.cause == "exit" and end.code is not None):
            return True  # host code ended it; the interpreter's player meets the same end, and names it
        stop = failures.why_lost(error, Stage.COMPILE, "compile")
        if stop.verdict is Verdict.RUNTIME_ERROR:
            finding = stop.finding.model_copy(
                update={
                    "kind": "backend",
                    "source": Source.COMPILER,
                    "title": "the compiler crashed",
                }
            )
            stop = Stop(Verdict.COMPILE_ERROR, finding)
        self.owner._stop = stop
        return True


def refused(kernels: Sequence[CompiledKernel]) -> Stop | None:
    """The first kernel none of whose configurations compiles."""
    fine = {(k.kernel, str(k.constexprs)) for k in kernels if k.failure is None}
    working = {name for name, _ in fine}
    for kernel in kernels:
        failure = kernel.failure
        if failure is None or (kernel.config is not None and kernel.kernel in working):
            continue
        line = failure.get("line")
        facts = ("resource", "required", "limit", "operands")
        numbers: Evidence = {key: failure[key] for key in facts if failure.get(key)}
        numbers["constexprs"] = [f"{name}={kernel.constexprs[name]}" for name in kernel.constexprs][
            :12
        ]
        finding = Finding(
            stage=Stage.COMPILE,
            kind=str(failure["kind"]),
            severity=Severity.GATE,
            source=Source.COMPILER,
            title=f"{kernel.kernel}: {failure['message']}"[:300],
            evidence={**numbers, "detail": str(failure.get("detail", ""))[:1500]},
            location=Location(kernel=kernel.kernel, line=line if isinstance(line, int) else None),
        )
        if str(failure.get("resource", "")).startswith("grid"):
            launch = finding.model_copy(update={"kind": "launch"})
            return Stop(Verdict.RUNTIME_ERROR, launch)
        return Stop(Verdict.COMPILE_ERROR, finding)
    return None


def below_policy(kernels: Sequence[CompiledKernel], arena: Arena) -> Stop | None:
    """A float32 matrix product in TF32 where the policy asks for full precision."""
    if arena.allows_tf32 or arena.precision is Precision.TF32:
        return None
    for kernel in kernels:
        low = [d for d in kernel.dots if d["dtype"] == "f32" and d["precision"] == "tf32"]
        if kernel.failure is None and low:
            finding = Finding(
                stage=Stage.COMPILE,
                kind="precision_below_policy",
                severity=Severity.GATE,
                source=Source.COMPILER,
                title=f"{kernel.kernel} multiplies float32 in TF32; the policy of this task is full float32",
                evidence={"dots": len(low), "input_precision": "tf32"},
                location=Location(kernel=kernel.kernel, line=kernel.line),
                suggestion='Write tl.dot(a, b, input_precision="ieee").',
            )
            return Stop(Verdict.INCORRECT, finding)
    return None


def places_of(arena: Arena) -> Modelled:
    """What a full-size arena says of constructor arguments and inputs, for the compiling player."""
    return Modelled(
        init=arena.described.init,
        init_places=arena.described.init_buffer.places,
        inputs=arena.described.trees[0],
        places=arena.described.buffers[0].places,
    )


# Modelled time


@dataclass(frozen=True)
class FullSizeCall:
    """What one module launches and asks of torch at full size, and its compiled kernels."""

    modelled: Modelled
    kernels: list[CompiledKernel]


def full_size_call(
    source: str,
    spec: TaskSpec,
    task: Modelled,
    deadlines: Deadlines,
    new_player: Callable[..., PlayerLink],
) -> FullSizeCall | None:
    """For a module of the user's own that is no candidate now; None where it fails."""
    compilation = Compilation(new_player("compile", "baseline"), spec, task, deadlines)
    link = new_player("interpreter", "baseline")
    try:
        compilation.start(source)
        request = Load(source=source, role="baseline", device="cpu", target=spec.target)
        answer: Any = link.ask(request, Loaded, deadlines.imports)
        compilation.proceed()
        if not isinstance(answer, Failed):
            answer = link.ask(model_request(task), Modelled, MODEL_S)
        compilation.finish()
        return None if isinstance(answer, Failed) else FullSizeCall(answer, compilation.kernels)
    except PlayerLost:
        return None
    finally:
        link.close()
        compilation.close()


def model_request(task: Modelled) -> Model:
    return Model(
        seed=0,
        init=task.init,
        init_places=task.init_places,
        inputs=task.inputs,
        places=task.places,
    )


def modelled(
    call: Modelled, kernels: Sequence[CompiledKernel], target: Target, arena: Arena
) -> roofline.ModelledCall | None:
    """The roofline's time for a call under the task's precision policy; None if there is nothing to time."""
    result = roofline.modelled_us(
        call.launches,
        call.operations,
        kernels,
        target,
        matmul="tf32" if arena.matmul_may_use_tf32 else "ieee",
        convolution="tf32" if arena.convolution_may_use_tf32 else "ieee",
    )
    return result if math.isfinite(result.us) and result.us > 0 else None


def facts_of(kernel: CompiledKernel) -> dict[str, Any]:
    """What people and searches want to know of a compiled kernel."""
    names = (
        "kernel",
        "line",
        "config",
        "is_chosen",
        "num_warps",
        "num_stages",
        "shared_bytes",
        "registers",
        "spill_bytes",
        "spill_bytes_in_loops",
        "uses_tensor_cores",
        "dots",
    )
    return {name: getattr(kernel, name) for name in names}


def is_complete(call: Modelled) -> bool:
    """Whether every sampled program came to its end; how far one gets in its time depends on the machine."""
    return all(raw.get("is_complete", False) for raw in call.launches)


def stored_bytes(call: Modelled) -> float:
    """Bytes that kernels and torch operations write in a full-size call."""
    launched = sum(
        float(raw["counts"]["store_bytes"]) + float(raw["counts"]["atomic_bytes"])
        for raw in call.launches
    )
    return launched + sum(float(raw["written_bytes"]) for raw in call.operations)


def least_bytes(task: Modelled) -> float:
    """Bytes that any answer to a full-size call moves: what the reference reads of the inputs, and the outputs."""
    given = float(sum(nbytes_of(p) for p in task.places))
    read = sum(float(raw["read_bytes"]) for raw in task.operations)
    return min(given, read) + sum(nbytes_of(p) for p in task.outputs)


def interpreted_only(call: Modelled, kernels: Sequence[CompiledKernel]) -> list[str]:
    """Kernels of a full-size call that nothing like them was compiled of, in a full-size call as well.

    A tuned kernel has other constants each time. The other way round means nothing: a first call may pack parameters.
    """
    found: dict[str, None] = {}
    for raw in call.launches:
        name, is_tuned = str(raw["kernel"]), raw.get("config") is not None
        alike = [k for k in kernels if k.kernel == name]
        is_known = any(
            is_tuned or k.config is not None or _agree(raw["constexprs"], k.constexprs)
            for k in alike
        )
        if not is_known:
            found[name] = None
    return list(found)


def emptied(runs: Sequence[Ran], kernels: Sequence[CompiledKernel]) -> dict[str, set[str]]:
    """Kernels that compute at probe size, interpreted, and nothing of the kind at full size, compiled; by name, what."""
    seen: dict[str, set[str]] = {}
    for run in runs:
        for name, kinds in run.computes.items():
            seen.setdefault(name, set()).update(kinds)
    compiled: dict[str, set[str]] = {}
    for kernel in kernels:
        if kernel.failure is None:
            compiled.setdefault(kernel.kernel, set()).update(kernel.computes)
    return {
        name: kinds
        for name, kinds in seen.items()
        if kinds and name in compiled and not kinds & compiled[name]
    }


def unseen_kernels(call: Modelled, seen: Collection[str]) -> list[str]:
    """Kernels of a full-size call that were launched at no other size."""
    return [
        name
        for name in dict.fromkeys(str(raw["kernel"]) for raw in call.launches)
        if name not in seen
    ]


def _agree(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether the numbers among the constants that both know are the same."""
    return all(
        one[name] == other[name]
        for name in one.keys() & other.keys()
        if isinstance(one[name], int | float) and isinstance(other[name], int | float)
    )


def can_be_interpreted_whole(call: Modelled, task: Modelled) -> bool:
    programs = sum(math.prod(raw["grid"]) for raw in call.launches)
    nbytes = sum(map(nbytes_of, (*task.places, *task.outputs)))
    return programs <= MOST_WHOLE_PROGRAMS and nbytes <= MOST_WHOLE_BYTES


def reads_hardly(call: Modelled, task: Modelled) -> bool:
    """Whether less than half of what the reference reads is read, as far as that can be told without data."""
    if not is_complete(call) or any(_is_integer(p.dtype) for p in task.places):
        return False
    outputs = sum(nbytes_of(p) for p in task.outputs)
    return _read_bytes(call) < HALF * (least_bytes(task) - outputs)


def touches_less(call: Modelled, task: Modelled) -> bool:
    """Whether a full-size call seems not to read all that the reference reads of the inputs, or not to write all outputs.

    Programs are sampled, and an honest kernel may skip zeros that it knows of: a reason to look, no proof.
    """
    outputs = sum(nbytes_of(p) for p in task.outputs)
    wanted = least_bytes(task) - outputs
    return _read_bytes(call) < WHOLE * wanted or stored_bytes(call) < WHOLE * outputs


def _read_bytes(call: Modelled) -> float:
    loaded = sum(float(raw["counts"]["load_bytes"]) for raw in call.launches)
    return loaded + sum(float(raw["read_bytes"]) for raw in call.operations)


def outside_at_full_size(call: Modelled, task: Modelled) -> dict[str, Any] | None:
    """The first access outside its tensor in a full-size call; only where no address can hang on what lies in memory.

    Reserved memory reads as zero, so an index or a length from an input is not the real one.
    """
    if any(_is_integer(p.dtype) for p in task.places):
        return None
    for seen in call.memory:
        number = seen.get("launch")
        if seen.get("kind") != "out_of_bounds" or not isinstance(number, int):
            continue
        launch = call.launches[number] if 0 <= number < len(call.launches) else {}
        if launch and not any(_is_integer(str(a.get("dtype", ""))) for a in launch["args"]):
            return seen
    return None


def _is_integer(dtype: str) -> bool:
    return dtype.startswith(("int", "uint", "bool"))


def nbytes_of(place: Placed) -> int:
    """Bytes of a tensor's different elements."""
    stride = place.stride or tuple(1 for _ in place.shape)
    count = math.prod(n for n, s in zip(place.shape, stride, strict=True) if s)
    return count * dtype_named(place.dtype).itemsize


# Candidates that are written for one size


def literals_of_full_size(
    source: str,
    full: tuple[Sequence[Placed], Encoded],
    small: tuple[Sequence[Placed], Encoded],
) -> list[int]:
    """Integers in the source that are sizes of the full task and none of the probe's."""
    tree = parse(source)
    if isinstance(tree, Problem):
        return []
    only_full = set(_sizes(*full)) - set(_sizes(*small))
    found = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and type(node.value) is int
    }
    return sorted(n for n in found & only_full if n >= SMALLEST_LITERAL)


def _sizes(places: Sequence[Placed], init: Encoded) -> Iterator[int]:
    for place in places:
        yield from place.shape
        yield math.prod(place.shape)
    yield from _integers(init)


def _integers(tree: Encoded) -> Iterator[int]:
    if isinstance(tree, dict):
        for tag, body in tree.items():
            if tag == "int":
                yield int(body)
            else:
                yield from _integers(body)
    elif isinstance(tree, list):
        for item in tree:
            yield from _integers(item)
