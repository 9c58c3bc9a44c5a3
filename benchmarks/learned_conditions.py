"""Whether what was learned from five experts' kernels says rightly where a technique applies on kernels never seen.

    python benchmarks/learned_conditions.py learn      walk the five experts back: results/lineages/*.json
    python benchmarks/learned_conditions.py collect    take techniques out of other kernels: results/held_out_steps.jsonl
    python benchmarks/learned_conditions.py judge      rules from the first, judged on the second

A kernel that lacks a technique is asked whether it would gain by it: the rule reads the findings of that kernel alone. The
truth is what the model of speed says of the kernel that has it. Only steps that pass are asked about, and only techniques of
which at least one expert's kernel gave a lesson count: of others nothing was learned.
"""

import argparse
import json
import random
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.starting_entries import read_all
from gpu_runner.core.task import TaskSpec
from gpu_runner.diagnosis import diagnose
from gpu_runner.evaluation.pool import LocalPool, open_pool
from gpu_runner.evaluation.settings import EvaluationSettings
from gpu_runner.experience.lineage import SIMPLIFICATIONS, Lineage, Step, Tried, steps_of, trace
from gpu_runner.experience.rules import Rule, learned
from gpu_runner.learning import learn

ROOT = Path(__file__).parents[1]
EXPERTS = ROOT / "tests/experience/experts"
LINEAGES = ROOT / "benchmarks/results/lineages"
HELD_OUT = ROOT / "benchmarks/results/held_out_steps.jsonl"
STEPS_EACH = 3
KERNELS = """
hold-the-row-in-registers several-short-rows-a-program fuse-residual-into-norm fuse-pointwise-chain transpose-through-a-tile
heads-on-the-grid dequantise-inside-the-product lanes-along-the-contiguous-axis normalise-and-shift-in-one-pass
split-the-inner-dimension enough-bytes-in-flight one-pass-cross-entropy tf32-where-the-task-permits rotary-by-halves
fuse-scale-and-mask-into-softmax read-transposed-by-strides running-sum-along-rows pool-by-output-rows
share-input-of-two-products two-statistics-in-one-pass fuse-gather-with-its-consumer tiles-to-match-the-waves
shifted-loads-for-short-filters programs-that-share-an-output online-softmax-in-two-passes fold-fixed-norm-into-epilogue
one-division-for-a-row keep-float32-in-registers-only
""".split()


def learn_all(names: list[str], evaluations: int) -> None:
    LINEAGES.mkdir(exist_ok=True)
    for path in sorted(EXPERTS.glob("*.py")):
        if names and path.stem not in names:
            continue
        source = path.read_text()
        match = re.search(r"^Task: (\S+)$", source, re.MULTILINE)
        assert match is not None, f"{path} names no task"
        start = time.monotonic()
        with _pool() as pool:
            found = learn(
                pool, _task(ROOT / match[1]), source, evaluations=evaluations, others=_others()
            )
        minutes = (time.monotonic() - start) / 60
        content = {
            "lineage": found.lineage.model_dump(mode="json"),
            "lessons": [
                {"title": lesson.entry.title, **lesson.verification.model_dump(mode="json")}
                for lesson in found.lessons
            ],
        }
        (LINEAGES / f"{path.stem}.json").write_text(json.dumps(content, indent=1) + "\n")
        print(f"{path.stem}: {len(found.entries)} of {len(found.lessons)} lessons hold", end="")
        print(f", {minutes:.1f} minutes, {found.lineage.left_out} steps left out", flush=True)
        for tried in found.lineage.alone:
            cost = tried.cost or f"{tried.verdict}: {tried.title}"
            print(f"  {tried.step.technique:20} {tried.step.site:24} {cost}", flush=True)
        for lesson in found.lessons:
            ratios = ", ".join(
                f"{t.task_name} {t.ratio or t.reason}" for t in lesson.verification.trials
            )
            print(f"  {lesson.entry.title}: {ratios} {lesson.verification.reason}", flush=True)


def _task(path: Path) -> TaskSpec:
    return TaskSpec(name=path.stem, source=path.read_text())


def _others() -> list[TaskSpec]:
    """Tasks that a lesson may fit besides its own; only those with the same interface are looked at."""
    return [_task(path) for path in sorted((ROOT / "library/tasks").glob("*.py"))]


def collect(slugs: list[str]) -> None:
    done = {row["kernel"] for row in _rows()}
    starting = {one.slug: one for one in read_all()}
    with _pool() as pool:
        for slug in slugs:
            if slug in done:
                continue
            one = starting[slug]
            spec = TaskSpec(
                name=slug,
                source=one.task_source,
                precision=one.head.precision,
                target=one.head.target,
            )
            lineage = trace(
                one.text["After"],
                lambda source, spec=spec: _evaluated(pool, spec, source),
                lambda source, slug=slug: _drawn(pool, slug, source),
                evaluations=1 + STEPS_EACH,
            )
            with HELD_OUT.open("a") as file:
                for tried in lineage.alone:
                    row = {"kernel": slug, "tried": tried.model_dump(mode="json")}
                    row["tried"]["step"]["source"] = ""
                    file.write(json.dumps(row) + "\n")
            told = [f"{t.step.technique} {t.cost or t.verdict}" for t in lineage.alone]
            print(f"{slug}: {', '.join(told)}", flush=True)


def _drawn(pool: LocalPool, slug: str, source: str) -> tuple[Step, ...]:
    """The steps of a kernel in an order that its name alone decides, so that no technique is favoured."""
    steps = list(steps_of(pool.call(SIMPLIFICATIONS, {"source": source})))
    random.Random(slug).shuffle(steps)
    return tuple(steps)


def _evaluated(pool: LocalPool, spec: TaskSpec, source: str) -> Evaluation:
    return diagnose(pool.evaluate(spec, source), source)


def _pool() -> LocalPool:
    return open_pool(EvaluationSettings(device="cpu", seed=1))


def _rows() -> Iterator[dict[str, object]]:
    if HELD_OUT.exists():
        yield from map(json.loads, HELD_OUT.read_text().splitlines())


def judge() -> float:
    lineages = [
        Lineage.model_validate(json.loads(path.read_text())["lineage"])
        for path in sorted(LINEAGES.glob("*.json"))
    ]
    rules = learned([tried for lineage in lineages for tried in lineage.alone])
    for technique, rule in rules.items():
        print(f"{technique:22} {rule.gained} gained, {rule.idle} idle: {_condition(rule)}")
    asked = right = gained = others = 0
    kernels = set()
    for row in _rows():
        tried = Tried.model_validate(row["tried"])
        rule = rules[tried.step.technique]
        if tried.cost is None:
            continue
        says = rule.applies(tried.shown)
        if rule.is_learned:
            asked, right = asked + 1, right + (says is tried.costs)
            gained += tried.costs
            kernels.add(row["kernel"])
            mark = "  " if says is tried.costs else "!!"
        else:
            others, mark = others + 1, "--"
        print(
            f"{mark} {row['kernel']:34} {tried.step.technique:22} {tried.cost:7.3f} {says!s:5} {', '.join(tried.shown)}"
        )
    print(f"in {gained} of {asked} the technique gains: saying so always would be right as often")
    print(f"{others} questions about techniques that no expert taught (--) are not counted")
    print(
        f"right on {right} of {asked} questions ({right / asked:.1%}) about {len(kernels)} kernels"
    )
    return right / asked


def _condition(rule: Rule) -> str:
    return "wherever it is missing" if rule.findings is None else ", ".join(sorted(rule.findings))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("learn", "collect", "judge"))
    parser.add_argument("names", nargs="*")
    parser.add_argument("--evaluations", type=int, default=10, help="budget of learning from one")
    options = parser.parse_args()
    if options.what == "learn":
        learn_all(options.names, options.evaluations)
    elif options.what == "collect":
        collect(options.names or KERNELS)
    else:
        return 0 if judge() >= 0.85 else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
