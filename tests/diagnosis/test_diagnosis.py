"""From raw facts to a diagnosis: the place, the likely cause, one suggestion, the bottleneck first."""

from typing import Any

import pytest

from gpu_runner.core.evaluation import Evaluation, Timing
from gpu_runner.core.findings import Finding, Location, Severity, Source
from gpu_runner.core.targets import TARGETS
from gpu_runner.core.verdicts import Stage, Verdict
from gpu_runner.diagnosis import compile as compile_errors
from gpu_runner.diagnosis import diagnose
from tests.evolution.making import evaluation, source

KERNEL_LINE = 8
LOAD_LINE = 10


def finding(kind: str, title: str = "it is wrong", **more: Any) -> Finding:
    fields: dict[str, Any] = {
        "stage": Stage.PROBE,
        "severity": Severity.GATE,
        "source": Source.JUDGE,
    }
    return Finding(kind=kind, title=title, **(fields | more))


def diagnosed(verdict: Verdict, found: Finding, text: str = "") -> Finding:
    before = evaluation(verdict=verdict, kind=found.kind, findings=(found,))
    after = diagnose(before, text or source())
    assert (after.verdict, after.kind) == (before.verdict, before.kind)
    assert diagnose(after, text or source()) == after, "diagnosing twice changes something"
    assert after.lead is not None
    return after.lead


@pytest.mark.parametrize(
    ("text", "cause", "suggestion", "facts"),
    [
        (
            "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 262144, Hardware limit: 232448.",
            "needs 262144 bytes of shared memory, 232448 are available",
            "fewer num_stages",
            {"need": 262144, "limit": 232448},
        ),
        (
            "k needs 262,144 bytes of shared memory, the target has 232,448",
            "needs 262,144 bytes of shared memory, 232,448 are available",
            "smaller tiles",
            {"need": 262144, "limit": 232448},
        ),
        (
            "ValueError: arange's range must be a power of 2",
            "no power of two",
            "next_power_of_2",
            {},
        ),
        (
            "ValueError: numel (2097152) exceeds triton maximum tensor numel (1048576)",
            "a block has 2097152 elements, at most 1048576",
            "Loop over the row",
            {"numel": 2097152, "limit": 1048576},
        ),
        (
            "AttributeError(\"module 'triton.language' has no attribute 'softplus'\")",
            "triton.language has no softplus",
            "functions that triton.language has",
            {"name": "softplus"},
        ),
        (
            "module 'triton.language' has no attribute 'maximun'",
            "triton.language has no maximun",
            "Did you mean tl.maximum",
            {"name": "maximun"},
        ),
        (
            "NameError: Cannot access global variable EPS from within @jit'ed function.",
            "reads the global variable EPS",
            "Pass EPS as a tl.constexpr",
            {"name": "EPS"},
        ),
        (
            "Cannot make_shape_compatible: incompatible dimensions at index 0: 64 and 32",
            "sizes along axis 0 are 64 and 32",
            "[:, None]",
            {"index": 0, "a": 64, "b": 32},
        ),
        (
            "Input shapes should have M >= 1, N >= 1 and K >= 16",
            "at least 16",
            "Use blocks of at least 16",
            {},
        ),
        (
            "Loop-carried variable acc has initial type fp32 but is re-assigned to <['64'], fp32> in loop!",
            "acc starts as fp32 and becomes <['64'], fp32>",
            "tl.zeros",
            {"name": "acc", "a": "fp32", "b": "<['64'], fp32>"},
        ),
        (
            "unsupported AST node type: Try",
            "cannot contain a Python Try",
            "tl.where",
            {"node": "Try"},
        ),
        (
            "NameError('BLOCK is not defined')",
            "BLOCK is not defined",
            "only arguments",
            {"name": "BLOCK"},
        ),
        (
            "ModuleNotFoundError: No module named 'cupy'",
            "module cupy",
            "standard library's math",
            {"name": "cupy"},
        ),
        (
            "TypeError: dynamic_func() missing 1 required positional argument: 'n'",
            "the argument 'n' is missing",
            "signature",
            {"name": "'n'"},
        ),
        (
            "Pointer argument (at 0) cannot be accessed from Triton (cpu tensor?)",
            "a tensor on the CPU",
            "device of the input",
            {},
        ),
    ],
)
def test_error_texts_are_understood(text: str, cause: str, suggestion: str, facts: dict) -> None:
    lead = diagnosed(
        Verdict.COMPILE_ERROR, finding("frontend", "kernel: failed", evidence={"detail": text})
    )
    assert cause in lead.title
    assert suggestion in lead.suggestion
    assert lead.evidence.items() >= facts.items()
    assert lead.evidence["detail"] == text


def test_an_unknown_error_text_is_left_as_it_is() -> None:
    found = finding("backend", "LLVM ERROR: something new")
    assert diagnosed(Verdict.COMPILE_ERROR, found) == found


@pytest.mark.parametrize(
    ("text", "kernel", "line"),
    [
        ("at 2:14:\n    x = tl.oops()", "kernel", KERNEL_LINE + 1),
        ("at 900:1:", "kernel", source().count("\n") + 1),
        ("at 2:14:", "unknown", None),
        ('File "candidate.py", line 9, in kernel\nFile "candidate.py", line 12', None, 12),
        ("nothing", "kernel", None),
    ],
)
def test_error_texts_name_the_candidates_line(text: str, kernel: str | None, line: int) -> None:
    assert source().splitlines()[KERNEL_LINE - 1].startswith("def kernel")
    assert compile_errors.line_in(text, kernel, source()) == line


@pytest.mark.parametrize(
    ("region", "evidence", "cause"),
    [
        ("everywhere", {"max_error_rms": 0.004, "wrong_share": 0.99}, "of the size of rounding"),
        ("everywhere", {"max_error_rms": 3.0, "wrong_share": 0.99}, "a formula or a layout"),
        ("the tail of axis 1: 96 to 100 of 101", {"max_error_rms": 2.0}, "the last tile"),
        ("index 100 of axis 0 (the last)", {"max_error_rms": 2.0}, "the last tile"),
        ("every 4th of axis 1 from 3", {"max_error_rms": 2.0}, "one in 4 along axis 1"),
        ("a block of axis 0: 32 to 63 of 128", {"max_error_rms": 2.0}, "one tile or row"),
        ("scattered", {"max_error_rms": 2.0}, "without a pattern"),
    ],
)
def test_where_and_how_wrong_says_why(region: str, evidence: dict, cause: str) -> None:
    lead = diagnosed(
        Verdict.INCORRECT,
        finding(
            "values", "9 values are wrong", evidence=evidence, location=Location(region=region)
        ),
    )
    assert lead.title.startswith("9 values are wrong: ")
    assert cause in lead.title
    assert lead.suggestion


@pytest.mark.parametrize(
    ("region", "cause"),
    [("everywhere", "an overflow"), ("the tail of axis 0: 9 to 9 of 10", "masked tail")],
)
def test_nan_has_its_own_causes(region: str, cause: str) -> None:
    found = finding("nan", "3 values are NaN", location=Location(region=region))
    assert cause in diagnosed(Verdict.INCORRECT, found).title


@pytest.mark.parametrize(
    "kind",
    "shape dtype device structure input_changed state parameters precision_below_policy trivial_answer"
    " outside_given_distribution unwritten race".split(),
)
def test_every_kind_of_wrong_answer_comes_with_a_suggestion(kind: str) -> None:
    assert diagnosed(Verdict.INCORRECT, finding(kind)).suggestion


@pytest.mark.parametrize(
    ("index", "cause"),
    [(1003, "4 elements past the end of x"), (-2, "2 elements before the start of x"), (5, "")],
)
def test_an_access_out_of_bounds_says_how_far(index: int, cause: str) -> None:
    lead = diagnosed(
        Verdict.RUNTIME_ERROR,
        finding(
            "out_of_bounds",
            "kernel reads x",
            evidence={"index": index, "extent": 1000, "access": "load"},
            location=Location(kernel="kernel", line=LOAD_LINE, tensor="x"),
        ),
    )
    assert lead.title == "kernel reads x" + (f": {cause}" if cause else "")
    assert "The mask lets the access through" in lead.suggestion


def test_a_line_without_a_mask_is_named() -> None:
    text = "@triton.jit\ndef own(p):\n    x = tl.load(p + offsets)\n"
    found = finding(
        "out_of_bounds", evidence={"access": "load"}, location=Location(line=3, tensor="p")
    )
    lead = diagnosed(Verdict.RUNTIME_ERROR, found, text)
    assert "Line 3 has no mask" in lead.suggestion
    assert lead.evidence == {
        "access": "load",
        "cause": "missing_mask",
        "expression": "p + offsets",
    }


def test_memory_of_the_device_is_not_the_device_of_an_output() -> None:
    assert "work in blocks" in diagnosed(Verdict.OUT_OF_MEMORY, finding("device")).suggestion
    assert "Allocate outputs" in diagnosed(Verdict.INCORRECT, finding("device")).suggestion


def test_an_accusation_says_what_to_write_instead() -> None:
    found = finding(
        "torch_computes",
        evidence={"operations": ["aten.softmax.int", "aten.addmm.default"]},
        suggestion="Do it in a kernel.",
    )
    lead = diagnosed(Verdict.CHEATING, found)
    assert lead.suggestion.startswith("Do it in a kernel. Instead of aten.softmax.int use a row")
    assert "aten.addmm.default use a tiled kernel" in lead.suggestion


def test_what_a_finding_already_says_is_kept() -> None:
    found = finding(
        "frontend",
        "name 'x' is not defined",
        evidence={"name": "mine"},
        location=Location(line=3, kernel="other"),
        suggestion="Mine.",
    )
    lead = diagnosed(Verdict.COMPILE_ERROR, found)
    assert lead.evidence == {"cause": "unknown_name", "name": "mine"}
    assert (lead.location.line, lead.location.kernel) == (3, "other")
    assert lead.suggestion.startswith("Mine. Define or import it")


# Correct candidates


def part(name: str = "kernel", **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "name": name,
        "kind": "kernel",
        "us": 104.0,
        "launch_us": 4.0,
        "dram_us": 100.0,
        "bound": "dram",
        "dram_bytes": 1000.0,
        "minimum_bytes": 1000.0,
        "line": 8,
    }
    return fields | more


def correct(*parts: dict[str, Any], **profile: Any) -> Evaluation:
    us = sum(one["us"] for one in parts)
    return evaluation(1.5, profile={"candidate": {"us": us, "parts": list(parts)}, **profile})


def hints(found: Evaluation) -> list[str]:
    return [f.kind for f in diagnose(found, source()).findings if f.severity is Severity.HINT]


@pytest.mark.parametrize(
    ("parts", "profile", "kind", "gain"),
    [
        ([part(), part("b", us=9.0, launch_us=5.0, dram_us=4.0)], {}, "launches", 113 / 104),
        ([part(dram_bytes=2000.0)], {}, "redundant_traffic", 104 / 54),
        ([part(bytes_per_wanted_byte=4.0)], {}, "uncoalesced", 104 / 29),
        ([part(parallelism=0.5, limiter="grid")], {}, "little_in_flight", 104 / 54),
        ([part(bound="dot", dot_us=100.0, tail=2.0, occupancy=1)], {}, "tail", 104 / 54),
        (
            [part(l2_us=150.0, us=154.0, bound="l2", dram_bytes=0.0)],
            {"kernels": [{"kernel": "kernel", "spill_bytes": 64}]},
            "spills",
            154 / 104,
        ),
        (
            [part(bound="alu", alu_us=100.0, dram_us=1.0, occupancy=1.0)],
            {
                "kernels": [{"kernel": "kernel", "uses_tensor_cores": False}],
                "eager": {"us": 1.0, "parts": [part("mm", kind="matmul")]},
            },
            "no_tensor_cores",
            104 / (104 * 0.3),
        ),
    ],
)
def test_the_bottleneck_leads_with_its_predicted_gain(parts, profile, kind, gain) -> None:
    found = diagnose(correct(*parts, **profile), source())
    assert found.lead is not None
    assert found.lead.kind == kind
    assert found.lead.evidence["predicted_gain"] == pytest.approx(gain)
    assert found.lead.suggestion
    assert found.lead.location.kernel == "kernel"
    assert diagnose(found, source()) == found
    assert found.fitness == 1.5


@pytest.mark.parametrize(("in_loops", "kinds"), [(64, ["spills"]), (0, [])])
def test_spills_that_no_loop_repeats_are_no_bottleneck(in_loops, kinds) -> None:
    kernel = {"kernel": "kernel", "spill_bytes": 64, "spill_bytes_in_loops": in_loops}
    assert [kind for kind in hints(correct(part(), kernels=[kernel])) if kind == "spills"] == kinds


def test_the_largest_loss_comes_first() -> None:
    slow = part(dram_bytes=4000.0)
    assert hints(correct(slow, part("b", us=14.0, dram_us=10.0))) == [
        "redundant_traffic",
        "extra_kernels",
    ]


@pytest.mark.parametrize(
    ("parts", "kind", "line", "gain"),
    [
        ([part(), part("b", us=54.0, dram_us=50.0, line=20)], "extra_kernels", 20, 158 / 104),
        (
            [part(), part("_to_copy", kind="copy", us=52.0, line=30)],
            "needless_copies",
            30,
            156 / 104,
        ),
        (
            [part("mm", kind="matmul", us=400.0, line=40, dot_us=390.0, dram_us=1.0), part()],
            "outside_own_kernels",
            40,
            504 / 400,
        ),
        (
            [part(bytes_per_wanted_byte=4.0, spread_tensor="x", spread_line=12, dram_bytes=4000.0)],
            "uncoalesced",
            12,
            104 / 29,
        ),
        (
            [part(dram_bytes=2000.0, reread_tensor="x", reread_line=14, reread_times=2.0)],
            "redundant_traffic",
            14,
            104 / 54,
        ),
        (
            [part(bound="dot", dot_us=100.0, dram_us=9.0, flops_a_dot=8192.0, dot_efficiency=0.18)],
            "small_tiles",
            8,
            104 / 29,
        ),
    ],
)
def test_a_loss_is_at_its_line(parts, kind, line, gain) -> None:
    lead = diagnose(correct(*parts), source()).lead
    assert lead is not None
    assert (lead.kind, lead.location.line) == (kind, line)
    assert lead.predicted_gain == pytest.approx(gain)


@pytest.mark.parametrize("reached", [0.951, 0.98, 1.04])
def test_a_call_at_the_memory_ceiling_has_no_other_finding(reached: float) -> None:
    target = TARGETS["h200"]
    us = 104.0
    least = reached * us * target.bandwidth * target.copy_fraction / 1e6
    slow = part(dram_bytes=2000.0, bytes_per_wanted_byte=4.0, parallelism=0.5, limiter="grid")
    found = correct(slow, least_bytes=least).model_copy(update={"environment": {"target": "h200"}})
    (only,) = diagnose(found, source()).findings
    assert (only.kind, only.severity) == ("at_memory_ceiling", Severity.NOTE)
    assert only.evidence["reached"] == pytest.approx(reached)


def test_a_call_below_the_memory_ceiling_is_told_what_it_loses() -> None:
    found = correct(part(dram_bytes=2000.0), least_bytes=1000.0)
    below = found.model_copy(update={"environment": {"target": "h200"}})
    assert hints(below) == ["redundant_traffic"]


def test_nothing_to_gain_is_said() -> None:
    found = diagnose(correct(part()), source())
    assert hints(found) == []
    (note,) = found.findings
    assert note.kind == "bound_by_dram"
    assert note.title == (
        "kernel takes 100% of the modelled time, bound by the memory's bandwidth;"
        " the diagnosis knows nothing that would gain much"
    )


@pytest.mark.parametrize("profile", [{}, {"candidate": None}, {"candidate": {"parts": [{"x": 1}]}}])
def test_an_unreadable_profile_gives_no_performance_findings(profile: dict) -> None:
    assert diagnose(evaluation(1.5, profile=profile), source()).findings == ()


def test_a_gate_leads_even_when_hints_came_first() -> None:
    hint = finding("x", severity=Severity.HINT)
    gate, second = finding("values"), finding("race", severity=Severity.GATE)
    found = evaluation(verdict=Verdict.INCORRECT, kind="values", findings=(hint, gate, second))
    assert [f.kind for f in diagnose(found, source()).findings] == ["values", "race", "x"]


def test_a_slow_host_is_a_finding_on_a_gpu() -> None:
    measured = evaluation(1.5, interval=(1.4, 1.6)).model_copy(
        update={"candidate": Timing(device_us=10, call_us=60, n=100)}
    )
    (found,) = diagnose(measured, source()).findings
    assert (found.kind, found.severity) == ("host_bound", Severity.WARNING)
    assert found.evidence == {"call_us": 60, "device_us": 10}


def test_on_a_gpu_the_parts_fill_the_measured_time() -> None:
    parts = [part(us=300.0, dram_us=200.0), part("b", us=100.0, dram_us=90.0)]
    measured = evaluation(
        1.5, interval=(1.4, 1.6), profile={"candidate": {"us": 400.0, "parts": parts}}
    ).model_copy(update={"candidate": Timing(device_us=800.0, n=100)})

    summary = next(f for f in diagnose(measured, source()).findings if f.kind == "bound_by_dram")

    assert summary.title.startswith("kernel takes 75% of the measured time")
    assert summary.evidence["measured_us"] == pytest.approx(800)
    assert summary.evidence["dram_us"] == pytest.approx(580)
