"""Which operations are between input and output, and what that makes of a candidate."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from gpu_runner.core.verdicts import Track
from gpu_runner.evaluation.child import below, dispatch, flow, gates, genuineness
from gpu_runner.evaluation.child.compiling import CompiledKernel
from gpu_runner.evaluation.protocol import Accusation, Buffer, Launch, Modelled, Operation, Ran


@pytest.fixture(autouse=True, scope="module")
def _printing() -> Iterator[None]:
    before = torch._tensor_str._str
    below.tell_printing_apart(lambda tensor, elements, text: text)
    yield
    torch._tensor_str._str = before


class Inside(torch.Tensor):
    """Computes in its own dispatch, whatever it is asked for."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> "Inside":
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)  # type: ignore[attr-defined,no-any-return]

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> torch.Tensor:
        return torch.exp(args[0].inner)


def recorded(body: Callable[[], torch.Tensor], recorder: dispatch.Recorder) -> dispatch.Recorder:
    with torch.no_grad(), recorder.watch_functions(), recorder:
        y = body()
    recorder.operations([y])
    return recorder


def guilty(source: str, track: Track = Track.OWN_KERNELS) -> list[str]:
    """Names of the operations that would convict, of a forward with this body."""
    x, w = torch.randn(20, 30), torch.nn.Parameter(torch.randn(30, 30))
    lengths = torch.tensor([3, 4])
    recorder = dispatch.Recorder([x, lengths], [w], lambda: None)
    profile = below.SeenBelow()
    scope: dict[str, Any] = {
        "x": x,
        "w": w,
        "lengths": lengths,
        "torch": torch,
        "shared": torch.from_numpy(np.zeros((20, 30), np.float32)),
        "Inside": Inside,
        "kernel": lambda *tensors: recorder.launched(tensors, [], "kernel"),
    }
    with torch.no_grad(), profile, recorder.watch_functions(), recorder:
        exec(source, scope)
        recorder.mark_end()
    recorder.add_hidden(profile)
    operations = recorder.operations([scope["y"]])
    return [op.name for op in operations if genuineness.is_forbidden(op, track)]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("y = torch.softmax(x, 1)", ["aten::_softmax"]),
        ("y = x @ w", ["aten::mm"]),
        ("y = x + 1", ["aten::add"]),
        ("y = torch.relu_(x.clone())", ["aten::relu_"]),
        ("y = torch.where(x > 0, x, 0.0)", ["aten::gt", "aten::where"]),
        ("y = x.argmax(1)", ["aten::argmax"]),
        ("y = torch.empty_like(x); torch.mul(x, 2, out=y)", ["aten::mul"]),
        ("y = torch.zeros_like(x); y[3:] += x[3:]", ["aten::add_"]),
        ("s = x.max().item(); y = torch.empty_like(x); kernel(x, y)", ["aten::max"]),
        ("y = torch.from_numpy(x.numpy() * 2)", ["Tensor.numpy"]),
        ("y = torch.tensor([v for r in x.tolist() for v in r])", ["Tensor.tolist"]),
        ("with torch._C._DisableTorchDispatch():\n    y = torch.exp(x)", ["aten::exp"]),
        ("t = torch.empty_like(x); kernel(x, t); y = t * w[0, 0]", ["aten::mul"]),
        ("y = x.view(torch.int32).clamp(min=0).view(torch.float32)", ["aten::clamp"]),
        ("y = torch._neg_view(x).clone()", ["aten::_neg_view"]),
        ("y = x.clone().scatter_(1, lengths[None], x, reduce='multiply')", ["aten::scatter_"]),
        (
            "y = torch.zeros(30).index_put_((lengths,), x[:2, 0], accumulate=True)",
            ["aten::index_put_"],
        ),
        ("y = torch.tensor([x[i, j].item() for i in range(9) for j in range(9)])", ["Tensor.item"]),
        ("y = torch.tensor(x.view(torch.int32).tolist())", ["Tensor.tolist"]),
        ("y = torch.tensor([x[i].tolist() for i in range(9)])", ["Tensor.tolist"]),
        ("y = x.to(torch.int32).float()", ["aten::_to_copy"]),
        ("y = torch.empty_like(x); y.copy_(x.to(torch.int8))", ["aten::_to_copy"]),
        ("y = torch._conj(x.to(torch.complex64)).clone()", ["aten::_conj"]),
        ("y = torch.ops.aten.lift_fresh_copy(x).exp()", ["aten::exp"]),
        ("t = torch.empty(()); t.fill_(x[0, 0]); y = t.exp()", ["aten::exp"]),
        ("s = x.amax(1).tolist(); y = torch.empty_like(x); kernel(x, y)", ["aten::amax"]),
        (
            "b = [bool(v) for v in x.flatten() > 0]; y = torch.tensor(b)",
            ["aten::gt", "Tensor.item"],
        ),
        ("kernel(x, shared); shared.copy_(x); y = torch.empty_like(x)", ["Tensor.numpy"]),
        ("y = Inside(x).clone()", ["aten::exp"]),
        (
            "torch.exp(w)\nwith torch._C._DisableTorchDispatch():\n    y = torch.exp(x)",
            ["aten::exp"],
        ),
    ],
)
def test_computation_between_input_and_output_convicts(source: str, names: list[str]) -> None:
    assert guilty(source) == names


@pytest.mark.parametrize(
    "source",
    [
        "y = torch.empty_like(x); kernel(x, y)",
        "y = torch.empty_like(x); kernel(x, w.t().contiguous(), y)",
        "f = (w * 2).sum(); y = torch.empty_like(x); kernel(x, f, y)",
        "y = torch.empty_like(x); kernel(x, w, y); z = w.exp()",
        "y = x.t().contiguous().to(torch.float16).view(-1)",
        "y = torch.cat([x[:5], x[5:]]).clone()",
        "y = torch.nn.functional.pad(x, (1, 1))",
        "y = torch.empty_like(x); kernel(x, y); print(x.sum())",
        "y = torch.empty_like(x); kernel(x, y)\nif torch.isnan(y).any():\n    pass",
        "n = int(lengths.max()); y = x.new_empty(n); kernel(x, y)",
        "i = lengths.cumsum(0); y = torch.empty_like(x); kernel(x, i, y)",
        "y = torch.zeros_like(x).fill_(3.0); kernel(x, y)",
        "y = torch.empty_like(x); kernel(x, y, torch.arange(20.0).sqrt())",
        "y = torch.empty_like(x); kernel(x, shared, y)",
        "y = torch.empty_like(x); kernel(x, y); print(y[0, :4].numpy())",
        "y = torch.zeros_like(x).fill_(3); y = x.to(torch.float16).to(torch.complex64)",
    ],
)
def test_moving_folding_and_looking_do_not_convict(source: str) -> None:
    assert guilty(source) == []


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("t = x @ w; y = torch.empty_like(t); kernel(t, y)", []),
        ("t = torch.nn.functional.linear(x, w, w[0]); y = torch.empty_like(t); kernel(t, y)", []),
        ("t = torch.sort(x, 1).values; y = torch.empty_like(t); kernel(t, y)", []),
        ("t = torch.relu(x @ w); y = torch.empty_like(t); kernel(t, y)", ["aten::relu"]),
    ],
)
def test_libraries_are_allowed_on_their_track_only(source: str, names: list[str]) -> None:
    assert guilty(source, Track.LIBRARY_ALLOWED) == names
    assert guilty(source, Track.OWN_KERNELS) != []


def ran(*launches: Launch, **options: Any) -> Ran:
    return Ran(tree=None, outputs=Buffer(nbytes=0, places=()), launches=launches, **options)


def test_a_kernel_from_elsewhere_is_no_own_kernel() -> None:
    foreign = ran(Launch(kernel="flash", grid=(1,), own=False))

    found = genuineness.torch_computes([foreign], Track.OWN_KERNELS)

    assert found is not None
    assert found.evidence["kernels"] == ["flash"]


def test_no_launch_at_all_is_a_decoy() -> None:
    assert genuineness.no_launch([ran()], ["gemm"]) is not None
    assert genuineness.no_launch([ran(Launch(kernel="gemm", grid=(1,)))], ["gemm"]) is None


def test_an_earlier_result_is_remembered_only_if_the_truth_has_changed() -> None:
    old, new = [torch.zeros(3)], [torch.ones(3)]

    assert genuineness.remembered(old, [old], new, [old]) is not None
    assert genuineness.remembered(old, [old], old, [old]) is None
    assert genuineness.remembered([torch.full((3,), 2.0)], [old], new, [old]) is None


def test_lazy_outputs_and_living_threads_are_deferred_work() -> None:
    assert genuineness.deferred(ran(lazy_outputs=("Later",))) is not None
    assert genuineness.deferred(ran(threads=1)) is not None
    assert genuineness.deferred(ran()) is None


def test_the_reference_weighs_more_than_tampering() -> None:
    seen = [
        Accusation(what="gc.get_objects", kind="tampering", detail="searches", line=3),
        Accusation(what="decoy.Model", kind="uses_reference", detail="found", line=9),
    ]

    found = genuineness.hooks(seen)

    assert [(f.kind, f.location.line) for f in found] == [("uses_reference", 9), ("tampering", 3)]


@pytest.mark.parametrize("has_floats", [True, False])
def test_integer_arithmetic_is_the_work_where_there_is_nothing_else(has_floats: bool) -> None:
    step = Operation(
        name="aten::cumsum", group="integer", calls=1, reaches_output=True, from_inputs=True
    )
    run = ran(Launch(kernel="copy", grid=(1,)), operations=(step,))

    found = genuineness.torch_computes([run], Track.OWN_KERNELS, has_floats=has_floats)

    assert (found is None) is has_floats


def test_what_an_earlier_call_made_is_stale_in_the_next_one() -> None:
    first, x, memo = torch.randn(20, 30), torch.randn(20, 30), torch.zeros(20, 30)
    before = recorded(lambda: memo.copy_(first), dispatch.Recorder([first], [], lambda: None))
    stale = frozenset(s.key for s in before.survivors if not s.storage.expired())

    def operations(body: Callable[[], torch.Tensor]) -> tuple[Operation, ...]:
        recorder = dispatch.Recorder([x], [], lambda: None, stale=stale)
        with torch.no_grad(), recorder:
            y = body()
        return recorder.operations([y])

    assert genuineness.reads_earlier_call([ran(operations=operations(memo.clone))], 600)
    assert genuineness.reads_earlier_call([ran(operations=operations(lambda: memo))], 600)
    assert not genuineness.reads_earlier_call(
        [ran(operations=operations(lambda: memo.copy_(x).clone()))], 600
    )


@pytest.mark.parametrize("is_new", [True, False], ids=["made in the call", "made before"])
def test_what_kernels_only_read_is_no_result_of_a_call(is_new: bool) -> None:
    x, w = torch.randn(20, 30), torch.randn(30, 20)
    packed, table, scratch = w.t().contiguous(), torch.ones(30), torch.zeros(20, 30)
    recorder = dispatch.Recorder([x], [w], lambda: None)
    with torch.no_grad(), recorder:
        if is_new:
            packed, table = w.t().contiguous(), torch.arange(30)
        y = torch.empty_like(x)
        after = recorder.launched([x, packed, table, scratch, y], [], "kernel")
        with dispatch.unwatched():
            scratch.copy_(torch.add(x, packed, out=y))
        after()
    recorder.operations([y])

    keys = {survivor.key for survivor in recorder.survivors}
    assert keys == {flow.storage_key(t) for t in (x, scratch, y)}


def test_a_mask_that_is_expanded_is_not_spread_out_to_look_at_it() -> None:
    x, mask = torch.randn(20), torch.ones(1).expand(10**12)
    recorder = dispatch.Recorder([x], [], lambda: None)

    with torch.no_grad(), recorder:
        after = recorder.launched([x, mask], [], "kernel")
        after()
    recorder.operations([x])

    assert [survivor.key for survivor in recorder.survivors] == [flow.storage_key(x)]


def test_the_host_is_told_the_numbers_of_another_call() -> None:
    told: list[Any] = []

    def body() -> torch.Tensor:
        told.append([t.amax().item(), t.sum().long().item(), t.amax(1)[:2].tolist()])
        return t.clone()

    t = torch.ones(20, 30)
    numbers = recorded(body, dispatch.Recorder([t], [], lambda: None)).numbers
    t = torch.zeros(20, 30)
    recorded(body, dispatch.Recorder([t], [], lambda: None, replay=numbers))

    assert told == [[1.0, 600, [1.0, 1.0]], [1.0, 600, [1.0, 1.0]]]


def test_a_number_that_the_host_reads_is_told_apart_from_what_the_output_holds() -> None:
    x = torch.randn(20, 30)
    recorder = dispatch.Recorder([x], [], lambda: None)
    with torch.no_grad(), recorder:
        print(x.mean().item())
        y = x.exp()

    found = {op.name: op.by_host for op in recorder.operations([y]) if op.group == "compute"}

    assert found == {"aten::mean": True, "aten::exp": False}


@pytest.mark.parametrize(
    ("stored", "is_complete", "is_cheating"),
    [(10, True, True), (10, False, False), (60, True, False)],
)
def test_a_sample_that_ran_out_of_time_accuses_nobody(
    stored: float, is_complete: bool, is_cheating: bool
) -> None:
    found = genuineness.too_little_work(stored, 100, is_complete=is_complete)

    assert (found is not None) is is_cheating


@pytest.mark.parametrize(
    ("kernel", "constexprs", "config", "found"),
    [
        ("softmax", {"FULL": True}, None, []),
        ("softmax", {"FULL": False}, None, ["softmax"]),
        ("softmax", {"FULL": False, "MORE": 1}, {}, []),
        ("softmax", {"BLOCK": 64, "act": "<InterpretedFunction>"}, None, []),
        ("copy", {}, None, ["copy"]),
    ],
)
def test_kernels_that_only_the_interpreter_sees_are_decoys(
    kernel: str, constexprs: dict[str, Any], config: dict[str, Any] | None, found: list[str]
) -> None:
    raw = {"kernel": kernel, "constexprs": constexprs, "config": config}
    compiled = CompiledKernel(kernel="softmax", line=3, target="h200")
    compiled.constexprs = {"FULL": True, "act": "<JITFunction>"}

    only = gates.interpreted_only(Modelled(launches=(raw,)), [compiled])

    assert only == found
    assert (genuineness.other_kernels(only, ["softmax"]) is not None) is bool(found)


def test_kernels_may_read_a_little_of_what_an_earlier_call_left() -> None:
    seen = {"kind": "stale", "kernel": "sums", "tensor": "counters", "line": 9, "count": 20}

    assert genuineness.kernel_reads_earlier_call([seen], 4_800) is None
    found = genuineness.kernel_reads_earlier_call([{**seen, "count": 4_000}], 4_800)
    assert found is not None
    assert (found.kind, found.location.line) == ("remembered_result", 9)


def test_what_is_written_over_by_the_host_stems_from_no_input() -> None:
    x, table = torch.randn(20, 30), torch.zeros(20, 30)
    y, by_host, moved = torch.zeros(20, 30), torch.zeros(20, 30), torch.empty(0)
    read = frozenset({x.data_ptr()})
    recorder = dispatch.Recorder([x], [], lambda: None, read_addresses=lambda: read)
    with torch.no_grad(), recorder:
        recorder.launched([x, y], [], "reads the input")()
        read = frozenset({table.data_ptr()})
        recorder.launched([x, table, by_host], [], "is given the input and does not read it")()
        moved = y.clone()

    assert recorder.sourceless([y, by_host, moved, x]) == (1,)


@pytest.mark.parametrize(("varying", "is_guilty"), [([0], True), ([], False)])
def test_an_output_without_a_source_convicts_where_it_changes_with_the_inputs(
    varying: list[int], is_guilty: bool
) -> None:
    run = ran(Launch(kernel="copy", grid=(1,)), sourceless=(0,))

    assert (genuineness.sourceless(run, varying) is not None) is is_guilty


def test_a_second_storage_over_an_inputs_memory_has_its_contents() -> None:
    x = torch.randn(20, 30)
    recorder = dispatch.Recorder([x], [], lambda: None)
    with torch.no_grad(), recorder:
        alias = torch.empty(0)
        storage = torch._C._construct_storage_from_data_pointer(
            x.data_ptr(), torch.device("cpu"), x.untyped_storage().nbytes()
        )
        alias.set_(storage, 0, x.shape, x.stride())
        y = torch.exp(alias)
    operations = recorder.operations([y])

    found = genuineness.torch_computes([ran(operations=operations)], Track.OWN_KERNELS)
    assert found is not None
    assert "aten::exp" in found.evidence["operations"]


@pytest.mark.parametrize(("scale", "is_guilty"), [(1.0, False), (1e9, True)])
def test_integers_too_large_to_point_anywhere_are_numbers(scale: float, is_guilty: bool) -> None:
    x = torch.rand(20, 30)
    recorder = dispatch.Recorder([x], [], lambda: None)
    with torch.no_grad(), recorder:
        numbers = torch.empty(20, 30, dtype=torch.int64)
        after = recorder.launched([x, numbers], [], "to_fixed")
        with dispatch.unwatched():
            numbers.copy_(x * scale)
        after()
        y = numbers.sum(1)
    operations = recorder.operations([y])

    found = genuineness.torch_computes([ran(operations=operations)], Track.OWN_KERNELS)
    assert (found is not None) is is_guilty


def test_only_what_fills_its_storage_leaves_no_room_for_a_memory() -> None:
    whole, room = torch.zeros(12), torch.zeros(20)

    assert flow.filled_storages([whole[:6], whole[6:], room[:12]]) == {flow.storage_key(whole)}


def test_an_object_among_the_printing_options_does_not_work_while_torch_writes() -> None:
    class Digits(int):
        def __format__(self, how: str) -> str:
            raise AssertionError("works while nobody looks")

        __str__ = __repr__ = lambda self: self.__format__("")  # type: ignore[assignment]

    torch.set_printoptions(precision=Digits(2))
    try:
        assert repr(torch.tensor([0.5])) == "tensor([0.50])"
    finally:
        torch.set_printoptions(precision=4)


@pytest.mark.parametrize(
    ("interpreted", "compiled", "missing"),
    [
        (["math", "reduce"], [], {"k": {"math", "reduce"}}),
        (["math", "reduce"], ["reduce"], {}),
        (["math"], [], {"k": {"math"}}),
        ([], [], {}),
    ],
)
def test_a_kernel_that_is_emptied_where_it_is_compiled_is_found(
    interpreted: list[str], compiled: list[str], missing: dict[str, set[str]]
) -> None:
    run = ran(computes={"k": tuple(interpreted), "not compiled": ("dot",)})
    kernel = CompiledKernel(kernel="k", line=3, target="h200", computes=compiled)

    assert gates.emptied([run, run], [kernel]) == missing


def test_a_kernel_of_the_full_size_alone_was_seen_by_nobody() -> None:
    call = Modelled(launches=({"kernel": "small"}, {"kernel": "large"}, {"kernel": "large"}))

    assert gates.unseen_kernels(call, {"small"}) == ["large"]
