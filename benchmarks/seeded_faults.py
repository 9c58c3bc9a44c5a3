"""Does the leading finding name a fault that was put in? Twenty correct kernels, ten mechanical faults each.

A fault counts where it changes the verdict, or makes the modelled time more than 5 % longer. It is named if the lead's
kind or cause is one of those that the fault's table entry allows. Results are appended as they come; a second start goes on.

Run: python benchmarks/seeded_faults.py [--processes 2] [--only WORD] [--out FILE] [--table]
"""

import argparse
import ast
import json
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.seeded_kernels import SEEDS, Seed
from gpu_runner.core.task import TaskSpec
from gpu_runner.diagnosis import diagnose
from gpu_runner.evaluation.errors import RunnerError
from gpu_runner.evaluation.pool import LocalPool, open_pool
from gpu_runner.evaluation.settings import EvaluationSettings

SLOWER = 1.05
WANTED_SHARE = 0.85
OUT = ROOT / "benchmarks/results/seeded_faults_cpu.jsonl"

Change = Callable[[ast.Module], bool]


@dataclass(frozen=True)
class Fault:
    """A change of the syntax tree, which says whether it found anything to change, and how a lead may name it."""

    name: str
    change: Change
    names: frozenset[str]


def _calls(tree: ast.AST, *names: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in names
        ):
            yield node


def _keyword(call: ast.Call, name: str) -> ast.keyword | None:
    return next((k for k in call.keywords if k.arg == name), None)


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def drop_a_mask(tree: ast.Module) -> bool:
    for call in _calls(tree, "load"):
        if _keyword(call, "mask"):
            call.keywords = [k for k in call.keywords if k.arg not in ("mask", "other")]
            return True
    return False


def change_a_fill(tree: ast.Module) -> bool:
    for call in _calls(tree, "load"):
        other = _keyword(call, "other")
        if other is not None:
            is_zero = isinstance(other.value, ast.Constant)
            other.value = _expression("1.0" if is_zero else "0.0")
            return True
    return False


def swap_strides(tree: ast.Module) -> bool:
    """Of the first offset with two indices: each gets the other's stride."""
    for call in _calls(tree, "load", "store"):
        terms = _terms(call.args[0])
        scaled = [t for t in terms if isinstance(t, ast.BinOp) and isinstance(t.op, ast.Mult)]
        if len(scaled) >= 2:
            scaled[0].right, scaled[1].right = scaled[1].right, scaled[0].right
            return True
        plain = [t for t in terms[1:] if t not in scaled]
        if len(scaled) == 1 and plain:
            index, stride = scaled[0].left, scaled[0].right
            other = plain[-1]
            product = ast.BinOp(other, ast.Mult(), stride)
            kept = [t for t in terms if t is not scaled[0] and t is not other]
            total = kept[0]
            for term in [*kept[1:], index, product]:
                total = ast.BinOp(total, ast.Add(), term)
            call.args[0] = total
            return True
    return False


def _terms(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_terms(node.left), *_terms(node.right)]
    return [node]


def halve_the_accumulator(tree: ast.Module) -> bool:
    found = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "float32":
            node.attr, found = "float16", True
    for statement in ast.walk(tree):
        if found and isinstance(statement, ast.AugAssign | ast.Assign) and _accumulates(statement):
            statement.value = ast.Call(
                ast.Attribute(statement.value, "to"), [_expression("tl.float16")], []
            )
    return found


def _accumulates(statement: ast.AugAssign | ast.Assign) -> bool:
    if isinstance(statement, ast.AugAssign):
        return True
    target = statement.targets[0]
    names = [n.id for n in ast.walk(statement.value) if isinstance(n, ast.Name)]
    return isinstance(target, ast.Name) and target.id == "acc" and "acc" in names


def drop_the_last_tile(tree: ast.Module) -> bool:
    """Of a loop's range; where there is none, of the grid."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.For)
            and isinstance(node.iter, ast.Call)
            and len(node.iter.args) == 3
        ):
            _, end, step = node.iter.args
            node.iter.args[1] = ast.BinOp(end, ast.Sub(), step)
            return True
    for call in _calls(tree, "cdiv"):
        size, block = call.args
        call.func, call.args = (
            _expression("max"),
            [
                _expression("1"),
                ast.BinOp(size, ast.FloorDiv(), block),
            ],
        )
        return True
    return False


def remove_an_atomic(tree: ast.Module) -> bool:
    for call in _calls(tree, "atomic_add"):
        assert isinstance(call.func, ast.Attribute)
        call.func.attr = "store"
        return True
    return False


_TILES = ("BM", "BN", "BR", "BC")


def shrink_the_tile(tree: ast.Module) -> bool:
    """Tiles of 16 by 16, a sixteenth of a block; a block that holds a whole row stays. On one warp."""

    def smaller(name: str, size: int, is_row: bool) -> int:
        if is_row:
            return size
        return 16 if name in _TILES else max(32, size // 16)

    return _resize(tree, smaller, warps=1, tile_warps=1)


def widen_until_it_spills(tree: ast.Module) -> bool:
    """Tiles of 256 by 256 on four warps, blocks of 8192 or twice as large on one."""

    def wider(name: str, size: int, is_row: bool) -> int:
        if name in _TILES:
            return max(256, size)
        return 2 * size if is_row or size >= 8192 else 8192

    return _resize(tree, wider, warps=1, tile_warps=4)


def _resize(
    tree: ast.Module, resized: Callable[[str, int, bool], int], *, warps: int, tile_warps: int
) -> bool:
    """In the launch's keywords, and the same sizes in the grid's cdiv."""
    launches = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript)
    ]
    is_row = not list(_calls(tree, "cdiv"))
    sizes: dict[int, int] = {}
    for launch in launches:
        has_tiles = any(keyword.arg in _TILES for keyword in launch.keywords)
        for keyword in launch.keywords:
            value = keyword.value
            if keyword.arg == "num_warps":
                keyword.value = ast.Constant(tile_warps if has_tiles else warps)
            elif keyword.arg in ("BLOCK", *_TILES) and isinstance(value, ast.Constant):
                size = int(value.value)  # type: ignore[arg-type]
                sizes[size] = resized(str(keyword.arg), size, is_row and size == 8192)
                keyword.value = ast.Constant(sizes[size])
    for call in _calls(tree, "cdiv"):
        block = call.args[1]
        if isinstance(block, ast.Constant) and block.value in sizes:
            call.args[1] = ast.Constant(sizes[block.value])
    return any(size != new for size, new in sizes.items())


class _Strided(ast.NodeTransformer):
    """`tl.program_id(a) * B + tl.arange(0, B)` becomes `tl.arange(0, B) * tl.num_programs(a) + tl.program_id(a)`."""

    done = False

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        left, right = node.left, node.right
        is_block = isinstance(left, ast.BinOp) and "program_id" in ast.unparse(left)
        if not self.done and is_block and "tl.arange" in ast.unparse(right):
            self.done = True
            axis = ast.unparse(left).partition("program_id(")[2][0]
            return _expression(
                f"{ast.unparse(right)} * tl.num_programs({axis}) + tl.program_id({axis})"
            )
        return node


def decoalesce(tree: ast.Module) -> bool:
    """The last axis that is cut into blocks: neighbouring lanes get elements a grid apart."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.decorator_list:
            blocks = [
                s for s in node.body if isinstance(s, ast.Assign) and "program_id" in ast.unparse(s)
            ]
            strided = _Strided()
            for statement in reversed(blocks):
                statement.value = strided.visit(statement.value)
                if strided.done:
                    return True
    return False


def add_a_pass(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "forward":
            node.body.insert(0, ast.parse("x = x.clone()").body[0])
            return True
    return False


FAULTS = [
    Fault(
        "drop a mask",
        drop_a_mask,
        frozenset({"missing_mask", "unmasked_reduction", "out_of_bounds"}),
    ),
    Fault("change a fill", change_a_fill, frozenset({"wrong_fill", "unmasked_reduction"})),
    Fault("swap strides", swap_strides, frozenset({"transposed_strides", "uncoalesced"})),
    Fault("halve the accumulator", halve_the_accumulator, frozenset({"low_precision"})),
    Fault("drop the last tile", drop_the_last_tile, frozenset({"skipped_elements", "short_grid"})),
    Fault("remove an atomic", remove_an_atomic, frozenset({"race"})),
    Fault(
        "shrink the tile",
        shrink_the_tile,
        frozenset({"small_tiles", "little_in_flight", "redundant_traffic", "launches"}),
    ),
    Fault(
        "widen until it spills",
        widen_until_it_spills,
        frozenset({"spills", "shared_memory", "registers", "tile_too_large", "occupancy"}),
    ),
    Fault("de-coalesce", decoalesce, frozenset({"uncoalesced"})),
    Fault(
        "add a pass",
        add_a_pass,
        frozenset({"needless_copies", "extra_kernels", "redundant_traffic"}),
    ),
]


def broken(seed: Seed, fault: Fault) -> str | None:
    """The seed's candidate with the fault in it; None where it has nothing that could break so."""
    tree = ast.parse(seed.candidate)
    if not fault.change(tree):
        return None
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"


def examine(pool: LocalPool, seed: Seed, source: str) -> dict[str, object]:
    started = time.perf_counter()
    evaluation = pool.evaluate(TaskSpec(name=seed.name, source=seed.reference), source)
    evaluated = time.perf_counter()
    found = diagnose(evaluation, source)
    ended = time.perf_counter()
    lead = found.lead
    return {
        "verdict": str(found.verdict or found.state),
        "kind": found.kind,
        "us": found.candidate.device_us if found.candidate else None,
        "lead": lead.kind if lead else None,
        "cause": lead.evidence.get("cause") if lead else None,
        "title": lead.title if lead else None,
        "line": lead.location.line if lead else None,
        "predicted_gain": lead.predicted_gain if lead else None,
        "evaluation_s": evaluated - started,
        "diagnosis_s": ended - evaluated,
    }


def work(job: tuple[Seed, list[str], Path]) -> str:
    """One seed, as it is or with each of the named faults; a row is written as soon as it is there."""
    seed, names, out = job
    with open_pool(EvaluationSettings(device="cpu")) as pool:
        for name in names:
            fault = next((f for f in FAULTS if f.name == name), None)
            source = seed.candidate if fault is None else broken(seed, fault)
            row: dict[str, object] = {
                "seed": seed.name,
                "fault": name,
                "applies": source is not None,
            }
            if source is not None:
                try:
                    row |= examine(pool, seed, source)
                except RunnerError as error:
                    row |= {"verdict": "failed", "title": str(error)[:300]}
            with out.open("a") as file:
                file.write(json.dumps(row) + "\n")
    return f"{seed.name}: {len(names)} evaluated"


def kept(out: Path) -> list[dict[str, object]]:
    """The rows so far; one that failed or timed out, as on a busy machine, is run again."""
    lines = out.read_text().splitlines() if out.exists() else []
    rows = [json.loads(line) for line in lines]
    return [row for row in rows if row.get("verdict") not in ("failed", "timeout")]


def judged(rows: list[dict[str, object]]) -> list[dict[str, object]]:
    """Each row of a fault with whether it changed anything, and whether the lead names it."""
    whole = {row["seed"]: row for row in rows if not row["fault"]}
    names = {fault.name: fault.names for fault in FAULTS}
    found = []
    for row in rows:
        if not row["fault"] or not row["applies"] or row["seed"] not in whole:
            continue
        before = whole[row["seed"]]
        is_wrong = row["verdict"] not in (before["verdict"], "unevaluated")
        us, us_before = row.get("us"), before.get("us")
        is_slower = bool(us and us_before and us > SLOWER * us_before)  # type: ignore[operator]
        allowed = names[str(row["fault"])]
        found.append(
            row
            | {
                "changed": is_wrong or is_slower,
                "named": row.get("cause") in allowed or row.get("lead") in allowed,
                "ratio": us / us_before if us and us_before else None,  # type: ignore[operator]
            }
        )
    return found


def report(rows: list[dict[str, object]]) -> bool:
    found = judged(rows)
    for row in found:
        if row["changed"]:
            mark = "named " if row["named"] else "MISSED"
            what = (
                f"{row['verdict']}/{row['kind']}"
                if row["kind"]
                else f"{row['ratio']:.2f} times the time"
            )
            print(
                f"{mark} {row['seed']:16} {row['fault']:22} {what:34} {row['lead']} {row['cause'] or ''}"
            )
    changed = [row for row in found if row["changed"]]
    print()
    for fault in FAULTS:
        own = [row for row in changed if row["fault"] == fault.name]
        applied = sum(row["fault"] == fault.name for row in found)
        named = sum(bool(row["named"]) for row in own)
        print(f"{fault.name:24} applies to {applied:2}, changes {len(own):2}, named {named:2}")
    named = sum(bool(row["named"]) for row in changed)
    share = named / len(changed) if changed else 0.0
    print(f"{named} of {len(changed)} faults that change anything are named: {share:.0%}")
    timed = [row for row in rows if row.get("evaluation_s")]
    spent = sum(float(row["diagnosis_s"]) for row in timed)  # type: ignore[arg-type]
    evaluating = sum(float(row["evaluation_s"]) for row in timed)  # type: ignore[arg-type]
    if evaluating:
        print(f"diagnosis takes {spent / evaluating:.2%} of the evaluations' time")
    return share >= WANTED_SHARE


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", default="", help="seeds whose name contains this")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--table", action="store_true", help="print what is there, run nothing")
    options = parser.parse_args()
    if not options.table:
        known = {(row["seed"], row["fault"]) for row in kept(options.out)}
        wanted = ["", *(fault.name for fault in FAULTS)]
        jobs = [
            (seed, [name for name in wanted if (seed.name, name) not in known], options.out)
            for seed in SEEDS
            if options.only in seed.name
        ]
        options.out.parent.mkdir(parents=True, exist_ok=True)
        with multiprocessing.get_context("spawn").Pool(options.processes) as processes:
            for line in processes.imap_unordered(work, [job for job in jobs if job[1]]):
                print(line, flush=True)
    return 0 if report(kept(options.out)) else 1


if __name__ == "__main__":
    sys.exit(main())
