"""Evaluate the code before and after of every starting entry, and record what was found in `library/evaluated.json`.

    python benchmarks/library_evaluated.py [--target h200] [--again] [SLUG ...]

Records made with the code that the files hold now are kept; `--again` makes them anew. On a machine without a GPU the ratios
are modelled, for the target that an entry names first or the one given.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from gpu_runner.core.evaluation import Evaluation
from gpu_runner.core.starting_entries import FOLDER, Starting, read_all
from gpu_runner.core.starting_entries import Outcome as Record
from gpu_runner.core.task import TaskSpec
from gpu_runner.core.verdicts import Track
from gpu_runner.evaluation.pool import LocalPool, open_pool
from gpu_runner.evaluation.settings import EvaluationSettings

RECORDS = FOLDER / "evaluated.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("slugs", nargs="*")
    parser.add_argument("--target")
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    chosen = [s for s in read_all() if not options.slugs or s.slug in options.slugs]
    wanting = 0
    with open_pool(EvaluationSettings(device="cpu", seed=1)) as pool:
        for starting in sorted(chosen, key=lambda s: (s.head.task, s.slug)):
            target = options.target or starting.head.target
            known = [o for o in starting.outcomes if o.target == target]
            if not known or options.again:
                known = [record(pool, starting, target)]
                keep(starting.slug, known[0])
            wanting += not is_as_said(starting, known[0])
            print(line(starting, known[0]), flush=True)
    return 1 if wanting else 0


def record(pool: LocalPool, starting: Starting, target: str) -> Record:
    spec = TaskSpec(
        name=starting.slug,
        source=starting.task_source,
        track=starting.head.tracks[0] if starting.head.tracks else Track.OWN_KERNELS,
        precision=starting.head.precision,
        target=target,
    )
    before, after = (pool.evaluate(spec, starting.text[part]) for part in ("Before", "After"))
    for evaluation in (before, after):
        if not evaluation.is_correct and evaluation.lead:
            print("   ", evaluation.lead.title, str(evaluation.lead.evidence)[:400])
    is_timed = before.candidate is not None and after.candidate is not None
    return Record(
        digest=starting.digest,
        target=target,
        before=verdict(before),
        after=verdict(after),
        ratio=before.candidate.device_us / after.candidate.device_us if is_timed else None,
    )


def verdict(evaluation: Evaluation) -> str:
    found = str(evaluation.verdict or evaluation.state)
    return f"{found}/{evaluation.kind}" if evaluation.kind else found


def is_as_said(starting: Starting, found: Record) -> bool:
    """Whether the code does what the file says of it; how much it gains is another question."""
    return found.after == "correct" and found.before == (starting.head.cures or "correct")


def line(starting: Starting, found: Record) -> str:
    ratio = f"{found.ratio:.3f}" if found.ratio else "-"
    mark = "  " if is_as_said(starting, found) else "!!"
    return f"{mark} {starting.slug:34} {found.target:7} {found.before:36} {found.after:30} {ratio}"


def keep(slug: str, found: Record) -> None:
    records = json.loads(RECORDS.read_text()) if RECORDS.exists() else {}
    others = [
        old
        for old in records.get(slug, [])
        if old["digest"] == found.digest and old["target"] != found.target
    ]
    records[slug] = [*others, found.model_dump(mode="json")]
    RECORDS.write_text(json.dumps(records, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.exit(main())
