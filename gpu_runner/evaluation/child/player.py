"""The harness around one submitted module: the only process in which its code runs.

A player answers the judge's requests one by one (`protocol`). What it says is a claim; what the judge
relies on is what lies in lent buffers, how long its own clock ran, and how the process ended. The
reference's source never enters a candidate's process: in its place stands a decoy that tells on whoever uses it.
"""

import contextlib
import copy
import gc
import importlib.util
import os
import random
import sys
import threading
import time
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter
from typing import Any

import numpy as np
import torch
import triton
from torch import nn
from triton.runtime import interpreter as triton_interpreter

from gpu_runner.core.targets import TARGETS
from gpu_runner.evaluation.channel import Channel
from gpu_runner.evaluation.child import (
    below,
    dispatch,
    flow,
    full_size,
    guard,
    host_reads,
    inputs,
    launches,
    module_state,
    tells,
)
from gpu_runner.evaluation.child.answers import (
    PLAIN_TENSORS,
    Answer,
    contiguous_buffer,
    written_out,
)
from gpu_runner.evaluation.child.memory import (
    Lent,
    Memory,
    dtype_name,
    open_memory,
    place,
)
from gpu_runner.evaluation.child.narrowing import Narrowest
from gpu_runner.evaluation.errors import ChildCrashed, ProtocolError
from gpu_runner.evaluation.protocol import (
    TEXT_LIMIT,
    Accusation,
    Adopt,
    Buffer,
    Compile,
    CompiledAll,
    Composition,
    Construct,
    Constructed,
    Describe,
    Described,
    Encoded,
    Enqueued,
    Equip,
    Export,
    Failed,
    HostWindow,
    Launch,
    Load,
    Loaded,
    Message,
    Model,
    Place,
    Ran,
    Report,
    Reported,
    Run,
    Stored,
    Timed,
    Touch,
    Unencodable,
    Window,
    decode,
    encode,
    message_of,
    request_from,
)

MODULE_NAME = "submission"
POISON = {"": None, "nan": float("nan"), "number": 12345.0}
OPTIONS = ("TOLERANCE", "PRECISION", "INPLACE")
INTERPRETS = os.environ.get("TRITON_INTERPRET") == "1"


def main(channel: Channel, fds: list[int]) -> None:
    """Serve one judge until its end of the channel closes."""
    for fd in fds:
        os.close(fd)
    Player(channel).serve()


class Refused(Exception):
    """The submitted code failed; `answer` is what the judge is told."""

    def __init__(self, answer: Failed) -> None:
        super().__init__(answer.message)
        self.answer = answer


class Player:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._memory: Memory | None = None
        self._device = torch.device("cpu")
        self._load: Load | None = None
        self._module: Any = None
        self._path = ""
        self._guard: guard.Guard | None = None
        self._tap: launches.LaunchTap | None = None
        self._models: dict[bool, Any] = {}  # by: is it the float64 copy
        self._buffers_before: dict[str, torch.Tensor] = {}
        self._described: Any = None
        self._trees: tuple[Encoded, ...] = ()
        self._sets: list[list[torch.Tensor]] = []
        self._adopted: list[Lent] = []
        self._working: list[torch.Tensor] = []
        self._handed: list[torch.Tensor] = []
        self._previous: list[torch.Tensor] = []
        self._given: list[str] = []
        self._survivors: list[flow.Survivor] = []
        self._numbers: list[Any] = []
        self._threads_before = threading.active_count()
        self._gate: Any = None
        self._room: Lent | None = None
        self._room_buffer: Buffer | None = None
        self._flush: torch.Tensor | None = None
        self._has_rehearsed = False
        self._peak_bytes: int | None = None
        self._padding: list[torch.Tensor] = []

    def serve(self) -> None:
        handlers: dict[type[Message], Callable[..., Message]] = {
            Load: self.load,
            Describe: self.describe,
            Construct: self.construct,
            Export: self.export,
            Adopt: self.adopt,
            Run: self.run,
            Equip: self.equip,
            Place: self.place,
            Window: self.window,
            HostWindow: self.host_window,
            Model: self.model_full_size,
            Compile: self.compile_full_size,
            Report: self.report,
        }
        while True:
            try:
                message, fds = self._channel.receive(1e6)
            except ChildCrashed:
                return
            self._nonce, request = request_from(message)
            started = perf_counter()
            try:
                answer = handlers[type(request)](request, fds)
            except Refused as refused:
                answer = refused.answer
            if hasattr(answer, "seconds"):
                answer = answer.model_copy(update={"seconds": perf_counter() - started})
            self._channel.send(message_of(self._nonce, answer))

    # Loading and building

    def load(self, request: Load, fds: list[int]) -> Message:
        self._load = request
        self._device = torch.device(request.device)
        self._path = os.path.join(os.getcwd(), f"{MODULE_NAME}.py")
        with open(self._path, "w", encoding="utf-8") as file:
            file.write(request.source)
        self._prepare(request)
        with self._submitted("load"):
            self._module = self._import()
        if request.tf32 is not None:
            torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = request.tf32
        self._check_entry(request)
        return self._loaded()

    def is_own(self, filename: str) -> bool:
        return filename == self._path

    @property
    def watches_below(self) -> bool:
        """Where no time is measured, every call of a candidate is watched below the dispatcher too."""
        role = self._load.role if self._load is not None else "reference"
        return self._device.type == "cpu" and role == "candidate"

    def _prepare(self, request: Load) -> None:
        """Everything that must stand before the submitted module is imported."""
        target = TARGETS[request.target]
        if INTERPRETS:
            from gpu_runner.evaluation.child import interpreter

            interpreter.install(target)
        elif self._device.type == "cpu":
            from gpu_runner.evaluation.child import compiling

            compiling.install(target)
        self._tap = launches.LaunchTap(self.is_own)
        self._tap.install()
        below.tell_printing_apart(self._tap.printed)
        if request.role in ("candidate", "baseline"):
            self._forbid_compiling()
            self._plant_decoy()
            host_reads.install(self._tap)
            tells.install(self._accuse_user, self.is_own)
        # The harness's own lazy imports happen now, so that none of them is laid to the module.
        self._guard = guard.install(protected(), is_own=self.is_own)

    def _forbid_compiling(self) -> None:
        """`torch.compile` stays callable and does nothing but tell."""

        def tell(model: Any = None, **_: Any) -> Any:
            line = launches.line_finder(self.is_own)()
            if line is not None:
                detail = "calls torch.compile, which no track allows inside a candidate"
                self._accuse("torch.compile", "torch_computes", detail, line)
            return model if model is not None else lambda f: f

        torch.compile = tell

    def _plant_decoy(self) -> None:
        """A module that looks like the reference's, for those who search sys.modules for it."""
        player = self

        def told(what: str) -> None:
            line = launches.line_finder(player.is_own)()
            detail = f"found the task's module in memory and used its {what}"
            player._accuse(f"decoy.{what}", "uses_reference", detail, line)

        class Model(nn.Module):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__()
                told("Model")

            def forward(self, *args: Any, **kwargs: Any) -> Any:
                return args[0] if args else None

        def get_inputs() -> list[Any]:
            told("get_inputs")
            return []

        def get_init_inputs() -> list[Any]:
            told("get_init_inputs")
            return []

        module = types.ModuleType("task_module")
        Model.__module__ = module.__name__
        vars(module).update(
            Model=Model, get_inputs=get_inputs, get_init_inputs=get_init_inputs, torch=torch, nn=nn
        )
        sys.modules[module.__name__] = module

    def _accuse(self, what: str, kind: Any, detail: str, line: int | None) -> None:
        if self._guard is not None:
            self._guard.accuse(Accusation(what=what, kind=kind, detail=detail, line=line))

    def _accuse_user(self, what: str, detail: str, line: int | None) -> None:
        self._accuse(what, "tampering", detail, line)

    def _import(self) -> types.ModuleType:
        spec = importlib.util.spec_from_file_location(MODULE_NAME, self._path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[MODULE_NAME] = module
        with self._acting():
            spec.loader.exec_module(module)
        return module

    def _acting(self) -> contextlib.AbstractContextManager[Any]:
        """Where a CPU stands in for a GPU, submitted code meets the GPU it was written for."""
        if self._device.type == "cuda" or self._load is None or self._load.role == "reference":
            return contextlib.nullcontext()
        from gpu_runner.evaluation.child import stand_in

        return stand_in.acting_as_gpu()

    def _check_entry(self, request: Load) -> None:
        names = vars(self._module)
        if request.role == "reference":
            if not callable(names.get("Model")) and not callable(names.get("reference")):
                raise self._no_entry("load", "defines neither Model nor reference")
            if not callable(names.get("get_inputs")):
                raise self._no_entry("load", "defines no get_inputs()")
        elif request.role != "idle" and not callable(names.get("ModelNew")):
            raise self._no_entry("load", "defines no class ModelNew")

    def _no_entry(self, where: Any, message: str) -> Refused:
        return Refused(Failed(where=where, error="no_entry", message=message, cause="no_entry"))

    def _loaded(self) -> Loaded:
        names = vars(self._module)
        options = {name: encode(names[name]) for name in OPTIONS if _can_cross(names.get(name))}
        kernels = [
            launches.kernel_name(_innermost(value))
            for value in names.values()
            if self._tap is not None and self._tap.is_own_kernel(_innermost(value))
        ]
        return Loaded(
            has_init_inputs=callable(names.get("get_init_inputs")),
            has_function="Model" not in names and "reference" in names,
            options=options,
            matmul_tf32=_flag(lambda: torch.backends.cuda.matmul.allow_tf32),
            conv_tf32=_flag(lambda: torch.backends.cudnn.allow_tf32),
            kernels=tuple(dict.fromkeys(kernels))[:500],
        )

    def describe(self, request: Describe, fds: list[int]) -> Message:
        with self._submitted("describe"):
            seed_everything(request.seeds[0])
            init = _on_device(self._init_inputs(), self._device)
            sets = []
            for seed in request.seeds:  # one set at a time on the host: each may be gigabytes
                seed_everything(seed)
                sets.append(_on_device(_as_list(self._module.get_inputs()), self._device))
            self._described = {"init": init, "inputs": sets}
        init_tree, init_buffer = self._layout(self._described["init"], "get_init_inputs")
        laid = [self._layout(made, "get_inputs") for made in self._described["inputs"]]
        return Described(
            init=init_tree,
            init_buffer=init_buffer,
            trees=tuple(tree for tree, _ in laid),
            buffers=tuple(buffer for _, buffer in laid),
        )

    def _init_inputs(self) -> Any:
        make = getattr(self._module, "get_init_inputs", None)
        return make() if callable(make) else []

    def _layout(self, value: Any, what: str) -> tuple[Encoded, Buffer]:
        tensors: list[torch.Tensor] = []
        try:
            tree = encode(value, tensors)
            places, nbytes = place(tensors)
        except (Unencodable, RuntimeError, NotImplementedError) as error:
            raise self._no_entry("describe", f"{what} returned {error}") from error
        return tree, Buffer(nbytes=nbytes, places=tuple(places))

    def construct(self, request: Construct, fds: list[int]) -> Message:
        buffers = self._take(fds, (request.init_buffer, request.state), writable=False)
        init = self._decoded(request.init, buffers[0])
        with self._submitted("construct"):
            model = self._build(request.seed, init)
        matched = module_state.Matched([], [], [])
        if buffers[1] is not None:
            given = dict(zip(request.names, buffers[1], strict=True))
            with self._submitted("construct"), self._acting():
                matched = module_state.load_state(model, given)
            self._given = list(matched.loaded)
        self._models = {False: model}
        own = module_state.state_of(model)
        places, nbytes = place(list(own.values()))
        buffer_names = {name for name, _ in module_state.buffers_of(model)}
        return Constructed(
            names=tuple(own),
            state=Buffer(nbytes=nbytes, places=tuple(places)),
            parameters=sum(p.numel() for p in module_state.weights_of(model)),
            is_buffer=tuple(name in buffer_names for name in own),
            loaded=tuple(matched.loaded),
            missing=tuple(matched.missing),
            unexpected=tuple(matched.unexpected),
            training=bool(getattr(model, "training", True)),
        )

    def _build(self, seed: int, init: Any) -> Any:
        seed_everything(seed)
        names = vars(self._module)
        if self._is_reference and "Model" not in names:
            return _FunctionModule(names["reference"])
        kind = names["Model" if self._is_reference else "ModelNew"]
        with self._acting():
            model = kind(**init) if isinstance(init, dict) else kind(*_as_list(init))
            if isinstance(model, nn.Module):
                model = model.to(self._device)
        if self._load is not None and self._load.compiled:
            import torch._dynamo
            import torch._inductor.config

            torch._dynamo.reset()
            torch._inductor.config.compile_threads = 1
            model = torch.compile(model, dynamic=False)
        return model

    def export(self, request: Export, fds: list[int]) -> Message:
        (lent,) = self._adopt_all(fds, (request.buffer,), writable=True)
        tensors: list[torch.Tensor] = []
        if request.what == "state":
            tensors = list(module_state.state_of(self._models[False]).values())
        else:
            value = self._described[request.what]
            encode(value[request.index] if request.what == "inputs" else value, tensors)
        for spec, tensor in zip(request.buffer.places, tensors, strict=True):
            target, source = lent.tensor(spec), tensor.detach()
            if inputs.has_overlap(target):
                target, source = inputs._storage_run(target), inputs._storage_run(source)
            target.copy_(source)
        self._synchronize()
        lent.close()
        return Stored()

    def adopt(self, request: Adopt, fds: list[int]) -> Message:
        self._trees = request.trees
        self._adopted = self._adopt_all(fds, request.buffers, writable=False)
        self._sets = [
            [lent.tensor(spec) for spec in buffer.places]
            for lent, buffer in zip(self._adopted, request.buffers, strict=True)
        ]
        self._working = [inputs.empty_like_spec(t) for t in self._sets[0]]
        self._handed = []
        return Stored()

    # Calling

    def run(self, request: Run, fds: list[int]) -> Message:
        wanted = (request.outputs, request.after, request.buffers, request.previous)
        lent = self._adopt_optional(fds, wanted, writable=True)
        model = self._model_for(request)
        watch = _Watch(self, request, self._working, model)
        arguments = self._compose(request)
        with self._submitted("call", watch), torch.no_grad():
            answer = watch.call(lambda: written_out(full_size.call(model, arguments)))
        return self._ran(request, watch, answer, lent)

    def _model_for(self, request: Run) -> Any:
        """The module itself; or its copy in float64, with the buffers that the module had before its last call."""
        if not request.is_double:
            model = self._models[False]
            own = module_state.buffers_of(model) if self._is_reference else []
            self._buffers_before = {name: buffer.clone() for name, buffer in own}
            return model
        with self._submitted("call"):
            if True not in self._models:
                self._models[True] = copy.deepcopy(self._models[False]).double()
            module_state.copy_buffers(self._buffers_before, self._models[True])
        return self._models[True]

    @property
    def _is_reference(self) -> bool:
        return self._load is not None and self._load.role == "reference"

    def _compose(self, request: Run) -> Any:
        self._fill_working(request.composition)
        self._synchronize()
        return self._arguments(request.composition, is_double=request.is_double)

    def _fill_working(self, composition: Composition) -> None:
        """Once the next inputs are there, no code of the module may run before its call: nothing of it dies until then."""
        gc.disable()
        self._handed = self._to_hand_out()
        inputs.compose(self._working, self._sets, composition)

    def _to_hand_out(self) -> list[torch.Tensor]:
        """The working memory under tensors of the module's own, whose shape it may change.

        They are the last call's, unless that call changed them, so that who knows an input by its object gets new contents.
        """
        before = self._handed or [None] * len(self._working)
        return [
            own.detach() if handed is None or not _is_as_given(handed, own) else handed
            for handed, own in zip(before, self._working, strict=True)
        ]

    def _arguments(self, composition: Composition, *, is_double: bool = False) -> Any:
        """What the module is called with."""
        tensors = self._handed
        if is_double:
            tensors = [inputs.doubled(t) for t in tensors]
        return decode(self._trees[composition.base], tensors, torch)

    def _ran(
        self, request: Run, watch: "_Watch", answer: Answer, lent: Sequence[Lent | None]
    ) -> Message:
        tree, tensors, lazy = answer.tree, answer.tensors, answer.lazy
        stored = []
        if lent[3] is not None and self._fill(lent[3], request.previous, self._previous):
            stored.append("previous")
        if not lazy:
            if lent[0] is not None and self._fill(lent[0], request.outputs, tensors):
                stored.append("outputs")
            if lent[1] is not None and self._fill(lent[1], request.after, self._working):
                stored.append("after")
            if lent[2] is not None:
                own = module_state.state_of(self._models[request.is_double])
                found = [own[name] for name in request.buffer_names if name in own]
                if self._fill(lent[2], request.buffers, found):
                    stored.append("buffers")
        self._synchronize()
        self._previous = [self._kept(tensor) for tensor in tensors]
        sourceless = watch.sourceless(tensors)
        operations = watch.operations(tensors)
        self._remember(watch)
        for each in lent:
            if each is not None:
                each.close()
        return Ran(
            tree=tree,
            outputs=contiguous_buffer(tensors),
            devices=tuple(str(t.device) for t in tensors),
            stored=tuple(stored),
            operations=operations,
            sourceless=sourceless,
            launches=watch.launches[:2_000],
            launch_count=watch.launch_count,
            computes=watch.computes,
            memory=tuple(watch.memory[:200]),
            unwritten=tuple(watch.unwritten(tensors)),
            touched=tuple(watch.touched(tensors)[:400]),
            unevaluable=watch.unevaluable[:TEXT_LIMIT],
            narrowest=watch.narrowest,
            unreadable=answer.unreadable[:TEXT_LIMIT],
            lazy_outputs=tuple(lazy[:50]),
            relaid=tuple(
                index
                for index, (handed, own) in enumerate(zip(self._handed, self._working, strict=True))
                if _layout_of(handed) != _layout_of(own)
            ),
            threads=max(0, threading.active_count() - self._threads_before),
            seconds=0,
        )

    def _remember(self, watch: "_Watch") -> None:
        recorder = watch.recorder
        if recorder is not None:
            self._numbers = recorder.numbers
            self._survivors = [
                s for s in (*self._survivors, *recorder.survivors) if not s.storage.expired()
            ]

    def survivors(self, model: Any, names: Sequence[str]) -> list[flow.Survivor]:
        """What earlier calls filled from their inputs and is still there; state that the reference changes, too, is no secret.

        Args:
            names: of that state.
        """
        state = module_state.state_of(model)
        changing = [state[name] for name in names if name in state and name in self._given]
        keys = {flow.storage_key(tensor) for tensor in self._working}
        keys |= flow.filled_storages(changing)
        found = {s.key: s for s in self._survivors if not s.storage.expired()}
        return [s for key, s in found.items() if key not in keys]

    def _kept(self, output: torch.Tensor) -> torch.Tensor:
        """An output until the next call; a copy where it lies in an input, whose contents are ours to change."""
        if type(output) not in PLAIN_TENSORS or output.layout != torch.strided:
            return output
        inputs_own = {t.untyped_storage().data_ptr() for t in self._working}
        is_input = output.untyped_storage().data_ptr() in inputs_own
        return output.detach().clone() if is_input else output

    def _fill(self, lent: Lent, buffer: Buffer | None, tensors: Sequence[torch.Tensor]) -> bool:
        """Copy tensors to where they were asked for; False, and nothing copied, unless all of them fit."""
        places = buffer.places if buffer is not None else ()
        fits = len(places) == len(tensors) and all(
            tuple(t.shape) == spec.shape
            and dtype_name(t.dtype) == spec.dtype
            and t.device == self._device
            for t, spec in zip(tensors, places, strict=True)
        )
        if fits:
            for spec, tensor in zip(places, tensors, strict=True):
                lent.tensor(spec).copy_(tensor.detach())
        return fits

    # Time on a device

    def equip(self, request: Equip, fds: list[int]) -> Message:
        from gpu_runner.evaluation.child import cuda_memory

        gate, room = fds
        lent: Any = self._need_memory().adopt(gate, request.gate_bytes, writable=False)
        self._gate = cuda_memory.Gate(lent)
        self._room = self._need_memory().adopt(room, request.outputs.nbytes, writable=True)
        self._room_buffer = request.outputs
        return Stored()

    def place(self, request: Place, fds: list[int]) -> Message:
        from gpu_runner.evaluation.child import timing

        if self._flush is None:
            self._flush = torch.empty(timing.FLUSH_BYTES, dtype=torch.uint8, device=self._device)
        self._padding, self._working, self._handed = [], [], []
        torch.cuda.empty_cache()
        rng = random.Random(request.seed)
        self._padding = [
            torch.empty(rng.randrange(1, 64) << 20, dtype=torch.uint8, device=self._device)
            for _ in range(3)
        ]
        self._working = [inputs.empty_like_spec(t) for t in self._sets[0]]
        self._previous = []
        return Stored()

    def _rehearse(self, request: Window, keep: Callable[[int, Any], None]) -> None:
        """Once, before a gate is held: CUDA loads a kernel at its first launch and may wait for the whole device then."""
        given = self._compose_timed(request.compositions[0])
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        output = self._timed_call()(*given)
        self._peak_bytes = max(0, torch.cuda.max_memory_allocated() - before)
        keep(request.sampled, output)
        self._need_flush().zero_()
        self._has_rehearsed = True

    def window(self, request: Window, fds: list[int]) -> Message:
        from gpu_runner.evaluation.child import timing

        def keep(index: int, output: Any) -> None:
            tensors: list[torch.Tensor] = []
            if output is not None:
                encode(output, tensors)
            if self._room is not None and index == request.sampled:
                self._fill(self._room, self._room_buffer, tensors)

        with self._submitted("call"), torch.no_grad():
            if not self._has_rehearsed:
                self._rehearse(request, keep)
            times = timing.run_window(
                self._timed_call(),
                lambda index: self._compose_timed(request.compositions[index]),
                keep,
                self._need_flush(),
                len(request.compositions),
                lambda: self._gate.hold(request.ticket),
                lambda: self._channel.send(message_of(self._nonce, Enqueued())),
            )
        return Timed(times_us=tuple(max(t, 1e-3) for t in times), peak_bytes=self._peak_bytes)

    def host_window(self, request: HostWindow, fds: list[int]) -> Message:
        from gpu_runner.evaluation.child import timing

        with self._submitted("call"), torch.no_grad():
            times = timing.run_host_window(
                self._timed_call(),
                lambda index: self._compose_timed(request.compositions[index]),
                self._need_flush(),
                len(request.compositions),
            )
        return Timed(times_us=tuple(max(t, 1e-3) for t in times))

    def _timed_call(self) -> Callable[..., Any]:
        if self._load is not None and self._load.role == "idle":
            return self._do_nothing
        model = self._models[False]
        if _is_dict(self._trees[0]):
            return lambda arguments: model(**arguments)
        return model

    def _do_nothing(self, *arguments: Any) -> None:
        """One launch without work: what surrounds any launch belongs to the overhead."""
        self._need_flush()[:1].zero_()

    def _compose_timed(self, composition: Composition) -> Sequence[Any]:
        self._fill_working(composition)
        arguments = self._arguments(composition)
        return [arguments] if isinstance(arguments, dict) else _as_list(arguments)

    def _need_flush(self) -> torch.Tensor:
        if self._flush is None:
            raise ProtocolError("a window before a placement")
        return self._flush

    # Full size without a device

    def model_full_size(self, request: Model, fds: list[int]) -> Message:
        with self._submitted("call"), self._acting():
            if self._is_reference:
                return full_size.model_own(
                    self._build, self._init_inputs, self._module.get_inputs, request.seed
                )
            return full_size.model_given(self._build, request, self._watch_full_size)

    @contextlib.contextmanager
    def _watch_full_size(self, model: Any, tensors: list[torch.Tensor]) -> Iterator[Any]:
        assert self._tap is not None
        line_of = launches.line_finder(self.is_own)
        recorder = dispatch.Recorder(
            tensors, list(module_state.weights_of(model)), line_of, is_real=False
        )
        self._tap.reset(recorder, noop=False)
        try:
            with recorder:
                yield recorder
        finally:
            self._tap.leave()

    def compile_full_size(self, request: Compile, fds: list[int]) -> Message:
        with self._submitted("compile"), self._acting():
            return CompiledAll(kernels=tuple(full_size.compile_given(self._build, request)))

    def report(self, request: Report, fds: list[int]) -> Message:
        if self._guard is None:
            return Reported()
        return Reported(
            accusations=self._guard.compare(),
            matmul_tf32=_flag(lambda: torch.backends.cuda.matmul.allow_tf32),
            conv_tf32=_flag(lambda: torch.backends.cudnn.allow_tf32),
        )

    # Lent memory

    def _need_memory(self) -> Memory:
        if self._memory is None:
            self._memory = open_memory(str(self._device))
        return self._memory

    def _adopt_all(
        self, fds: Sequence[int], buffers: Sequence[Buffer], *, writable: bool
    ) -> list[Lent]:
        if len(fds) != len(buffers):
            raise ProtocolError(f"{len(buffers)} buffers with {len(fds)} file descriptors")
        return [
            self._need_memory().adopt(fd, buffer.nbytes, writable=writable)
            for fd, buffer in zip(fds, buffers, strict=True)
        ]

    def _adopt_optional(
        self, fds: list[int], buffers: Sequence[Buffer | None], *, writable: bool
    ) -> list[Lent | None]:
        given = [buffer for buffer in buffers if buffer is not None]
        adopted = iter(self._adopt_all(fds, given, writable=writable))
        return [None if buffer is None else next(adopted) for buffer in buffers]

    def _take(
        self, fds: list[int], buffers: Sequence[Buffer | None], *, writable: bool
    ) -> list[list[torch.Tensor] | None]:
        lent = self._adopt_optional(fds, buffers, writable=writable)
        return [
            None if buffer is None or each is None else [each.tensor(s) for s in buffer.places]
            for each, buffer in zip(lent, buffers, strict=True)
        ]

    def _decoded(self, tree: Encoded, tensors: list[torch.Tensor] | None) -> Any:
        return decode(tree, [t.clone() for t in tensors or []], torch)

    def _synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    # Failures of submitted code

    @contextlib.contextmanager
    def _submitted(self, where: Any, watch: "_Watch | None" = None) -> Iterator[None]:
        """Run submitted code; whatever it raises becomes an answer."""
        try:
            yield
        except (Refused, ProtocolError, ChildCrashed):
            raise
        except BaseException as error:  # noqa: BLE001 - a bad module may raise anything, SystemExit too
            raise Refused(self._failure(where, error, watch)) from None

    def _failure(self, where: Any, error: BaseException, watch: "_Watch | None") -> Failed:
        line, kernel = self._own_line(error), None
        if watch is not None and watch.errors:
            first = watch.errors[0]
            line, kernel = first.get("line") or line, first.get("kernel")
        if isinstance(error, SyntaxError) and error.filename == self._path:
            line = error.lineno
        trace = _readable(lambda: "".join(traceback.format_exception(error)[-12:]))
        cause = _cause_of(error)
        if watch is not None and watch.unevaluable:
            cause = "unsupported"
        return Failed(
            where=where,
            error=type(error).__name__[:300],
            message=(_readable(lambda: str(error)) or type(error).__name__)[:TEXT_LIMIT],
            line=line,
            kernel=kernel,
            trace=trace[-TEXT_LIMIT:],
            cause=cause,
            accusations=self._guard.seen() if self._guard is not None else (),
        )

    def _own_line(self, error: BaseException) -> int | None:
        chain: list[BaseException] = []
        while error is not None and error not in chain:
            chain.append(error)
            error = error.__cause__ or error.__context__  # type: ignore[assignment]
        for each in reversed(chain):
            frames = traceback.extract_tb(each.__traceback__)
            lines = [f.lineno for f in frames if self.is_own(f.filename) and f.lineno]
            if lines:
                return lines[-1]
        return None


class _Watch:
    """One call with everything that observes it: modes, launches, the interpreter's session."""

    def __init__(
        self, player: Player, request: Run, working: Sequence[torch.Tensor], model: Any
    ) -> None:
        self._player = player
        self._request = request
        self.recorder: dispatch.Recorder | None = None
        self._stale = player.survivors(model, request.buffer_names)
        self._session: Any = None
        self._below: Any = None
        self._is_audited = False
        self._narrowest = Narrowest()
        if request.watched:
            poison = None if INTERPRETS else POISON[request.poison]
            line_of = launches.line_finder(player.is_own)
            self._is_audited = request.audit or player.watches_below
            weights = list(module_state.weights_of(model))
            state = dict(module_state.buffers_of(model))
            self.recorder = dispatch.Recorder(
                working,
                weights,
                line_of,
                poison,
                stale=frozenset(s.key for s in self._stale),
                state=[state[name] for name in request.buffer_names if name in state],
                replay=player._numbers if request.blind else (),
                read_addresses=self._read_addresses if INTERPRETS else None,
            )
        tap = player._tap
        assert tap is not None
        tap.reset(self.recorder, noop=request.noop)
        self._tap = tap

    def call(self, function: Callable[[], Any]) -> Any:
        with contextlib.ExitStack() as stack:
            stack.callback(self._tap.leave)
            stack.enter_context(self._player._acting())
            if INTERPRETS and self._request.watched:
                self._session = stack.enter_context(self._interpreter_session())
                for survivor in self._stale:
                    storage = torch.UntypedStorage._new_with_weak_ptr(survivor.key)
                    if storage is not None:
                        self._session.allocations.follow_stale(storage, survivor.itemsize)
            if self.recorder is not None:
                if self._player._is_reference:
                    stack.enter_context(self._narrowest)
                if self._is_audited:
                    self._below = stack.enter_context(below.SeenBelow())
                stack.enter_context(self.recorder.watch_functions())
                stack.enter_context(self.recorder)
            gc.enable()
            output = function()
            self._player._synchronize()
            gc.disable()  # a destructor would work unseen, until the output is handed over
            if self.recorder is not None:
                self.recorder.mark_end()
            return output

    def _interpreter_session(self) -> contextlib.AbstractContextManager[Any]:
        from gpu_runner.evaluation.child import interpreter

        return interpreter.session(
            poison=POISON[self._request.poison], reverse=self._request.backwards
        )

    def operations(self, outputs: Sequence[torch.Tensor]) -> Any:
        if self.recorder is None:
            return ()
        if self._below is not None:
            self.recorder.add_hidden(self._below)
        return self.recorder.operations(outputs)

    def _read_addresses(self) -> frozenset[int]:
        return self._session.read_addresses if self._session is not None else frozenset()

    def sourceless(self, outputs: Sequence[torch.Tensor]) -> tuple[int, ...]:
        return self.recorder.sourceless(outputs) if self.recorder is not None else ()

    @property
    def launches(self) -> tuple[Launch, ...]:
        return tuple(self._tap.launches)

    @property
    def launch_count(self) -> int:
        return self._tap.count

    @property
    def computes(self) -> dict[str, tuple[str, ...]]:
        found = self._session.computes if self._session is not None else {}
        return {name[:300]: kinds for name, kinds in list(found.items())[:500]}

    @property
    def memory(self) -> list[dict[str, Any]]:
        return list(self._session.findings) if self._session is not None else []

    @property
    def errors(self) -> list[dict[str, Any]]:
        return list(self._session.errors) if self._session is not None else []

    @property
    def unevaluable(self) -> str:
        return (self._session.unevaluable or "") if self._session is not None else ""

    @property
    def narrowest(self) -> str:
        return dtype_name(self._narrowest.dtype) if self._narrowest.dtype is not None else ""

    def unwritten(self, outputs: Sequence[torch.Tensor]) -> list[float]:
        if self._session is None:
            return []
        return [min(1.0, max(0.0, self._session.unwritten_share(t))) for t in outputs]

    def touched(self, outputs: Sequence[torch.Tensor]) -> list[Touch]:
        if self._session is None:
            return []
        named = [(f"input {i}", t) for i, t in enumerate(self._player._working)]
        named += [(f"output {i}", t) for i, t in enumerate(outputs)]
        return [touch for name, t in named for touch in self._session.touched.of(name, t)]


class _FunctionModule(nn.Module):
    """A task given as a plain function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


def protected() -> list[tuple[str, Any]]:
    """What the evaluation relies on and no submitted module may replace."""
    import builtins
    import json
    import math
    import socket
    import struct

    from torch.autograd import profiler_legacy
    from torch.utils import _python_dispatch

    owners: list[tuple[str, Any]] = [
        ("torch", torch),
        ("torch.Tensor", torch.Tensor),
        ("torch._C", torch._C),
        ("torch._C.TensorBase", torch._C.TensorBase),
        ("torch.nn.Module", nn.Module),
        ("torch.nn.functional", nn.functional),
        ("torch.testing", torch.testing),
        ("torch.cuda", torch.cuda),
        ("torch.cuda.Event", torch.cuda.Event),
        ("torch.cuda.Stream", torch.cuda.Stream),
        ("torch.overrides", torch.overrides),
        ("torch._tensor_str", torch._tensor_str),
        ("torch.utils._python_dispatch", _python_dispatch),
        ("torch.autograd.profiler_legacy", profiler_legacy),
        ("triton", triton),
        ("triton.testing", triton.testing),
        ("triton.runtime.jit", triton.runtime.jit),
        ("triton.JITFunction", triton.runtime.jit.JITFunction),
        ("triton.KernelInterface", triton.runtime.jit.KernelInterface),
        ("triton.CompiledKernel", triton.compiler.CompiledKernel),
        ("triton.runtime.interpreter", triton_interpreter),
        ("triton.InterpretedFunction", triton_interpreter.InterpretedFunction),
        ("triton.InterpreterBuilder", triton_interpreter.InterpreterBuilder),
        ("triton.GridExecutor", triton_interpreter.GridExecutor),
        ("builtins", builtins),
        ("time", time),
        ("json", json),
        ("math", math),
        ("socket", socket),
        ("struct", struct),
        ("os", os),
        ("sys", sys),
        ("threading", threading),
        ("traceback", traceback),
        ("numpy", np),
    ]
    for name, module in list(sys.modules.items()):
        if name.startswith("gpu_runner.evaluation") and module is not None:
            owners.append((name, module))
            owners += [
                (f"{name}.{key}", value)
                for key, value in vars(module).items()
                if isinstance(value, type) and value.__module__ == name
            ]
    return owners


def seed_everything(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _as_list(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return list(value)
    return value if isinstance(value, dict) else [value]


def _layout_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Which memory a tensor shows, and how: what its owner may change without writing there."""
    if tensor.layout != torch.strided:
        return (tensor.layout,)
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride()


def _is_as_given(handed: torch.Tensor, own: torch.Tensor) -> bool:
    return not handed.requires_grad and _layout_of(handed) == _layout_of(own)


def _is_dict(tree: Encoded) -> bool:
    return isinstance(tree, dict) and "dict" in tree


def _on_device(value: Any, device: torch.device) -> Any:
    """The same structure with its tensors, and nothing else, on the device."""
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided or value.is_quantized or value.device.type == "meta":
            form = "quantized" if value.is_quantized else value.device.type
            form = str(value.layout) if value.layout != torch.strided else form
            raise TypeError(f"a {form} tensor cannot be handed on; make it an ordinary dense one")
        return value.detach().to(device)
    if isinstance(value, list):
        return [_on_device(item, device) for item in value]
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_on_device(item, device) for item in value)
    if isinstance(value, dict):
        return {key: _on_device(item, device) for key, item in value.items()}
    return value


def _innermost(value: Any) -> Any:
    """The function inside autotune and heuristics wrappers."""
    for _ in range(8):
        inner = getattr(value, "fn", None)
        if inner is None or isinstance(inner, types.FunctionType):
            return value
        value = inner
    return value


def _can_cross(value: Any) -> bool:
    if value is None:
        return False
    try:
        encode(value)
    except Unencodable:
        return False
    return True


def _readable(text: Callable[[], str]) -> str:
    """Text of submitted code, which may not exist, or not be one that can be sent."""
    try:
        return text().encode("utf-8", "backslashreplace").decode()
    except BaseException as error:  # noqa: BLE001 - __str__ is submitted code too
        return f"(its message cannot be read: {type(error).__name__})"


def _flag(read: Callable[[], bool]) -> bool:
    try:
        return bool(read())
    except RuntimeError:  # mixed old and new ways of setting it
        return False


def _cause_of(error: BaseException) -> Any:
    """What kind of failure an exception stands for; see `Failed.cause`."""
    names = {kind.__name__ for kind in type(error).__mro__}
    text = _readable(lambda: str(error))
    if names & {"OutOfMemoryError", "MemoryError"} or "can't allocate memory" in text:
        return "out_of_memory"
    if "Unevaluable" in names or "Unevaluable" in text:
        return "unsupported"
    if names & {"CompilationError", "CompileTimeAssertionFailure", "UnsupportedLanguageConstruct"}:
        return "compile"
    if names & {"OutOfResources", "PTXASError"}:
        return "launch"
    if "CUDA error" in text or "AcceleratorError" in names:
        return "device"
    return "own"
