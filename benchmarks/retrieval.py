"""How well retrieval finds what helps, on the judged moments of `retrieval_judged.jsonl`, and how fast it is.

    python benchmarks/retrieval.py [--verbose] [--entries 20000]

Quality: nDCG at 5 with the judged grades (3 helps at once, 2 helps, 1 is worth knowing), over all starting entries taken as
approved. Speed: a library of so many entries, made from the starting ones by recombining their words.
"""

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from gpu_runner.core.entries import Entry, EntryState
from gpu_runner.core.starting_entries import starting_entries, uid_of
from gpu_runner.experience.queries import Query
from gpu_runner.experience.retrieval import Library

JUDGED = Path(__file__).with_name("retrieval_judged.jsonl")


def judged() -> list[dict[str, Any]]:
    return [json.loads(line) for line in JUDGED.read_text().splitlines()]


def query_of(moment: dict[str, Any]) -> Query:
    finding = moment["finding"]
    return Query(
        operators=tuple(moment["operators"]),
        dtypes=tuple(moment["dtypes"]),
        target=moment["target"],
        bottlenecks=(finding["kind"],),
        words=f"{moment['task']} {finding['title']} {finding['suggestion']}",
    )


def ndcg(found: Sequence[str], grades: dict[str, int], depth: int = 5) -> float:
    """Discounted gain of what was found over that of the best order; gains are 2 ** grade - 1."""

    def discounted(gains: Sequence[int]) -> float:
        return sum((2**gain - 1) / math.log2(rank + 2) for rank, gain in enumerate(gains[:depth]))

    ideal = discounted(sorted(grades.values(), reverse=True))
    return discounted([grades.get(uid, 0) for uid in found]) / ideal


def approved() -> list[Entry]:
    return [entry.model_copy(update={"state": EntryState.APPROVED}) for entry in starting_entries()]


def quality(library: Library) -> list[tuple[dict[str, Any], float, list[str]]]:
    results = []
    for moment in judged():
        hits = [hit.entry for hit in library.retrieve(query_of(moment), 5)]
        grades = {uid_of(slug): grade for slug, grade in moment["helps"].items()}
        slugs = [hit.content.provenance.origin.removeprefix("library:") for hit in hits]
        results.append((moment, ndcg([hit.id for hit in hits], grades), slugs))
    return results


def many(count: int, rng: random.Random) -> list[Entry]:
    """A large library: contents of the starting entries with words of others mixed in."""
    starting = approved()
    words = [word for entry in starting for word in entry.content.action.split()]
    made = []
    for number in range(count):
        entry = rng.choice(starting)
        text = " ".join(rng.choices(words, k=40))
        content = entry.content.model_copy(update={"action": f"{entry.content.action} {text}"})
        made.append(entry.model_copy(update={"id": f"{number:032x}", "content": content}))
    return made


def speed(count: int) -> dict[str, float]:
    rng = random.Random(7)
    begin = time.perf_counter()
    library = Library(many(count, rng))
    built_s = time.perf_counter() - begin
    code = library.entries[0].content.before
    times = []
    for moment in judged() * 3:
        query = query_of(moment)
        query = Query(**{**vars(query), "code": code, "lens": "fuse tile memory"})
        begin = time.perf_counter()
        library.retrieve(query)
        times.append(1e3 * (time.perf_counter() - begin))
    cuts = statistics.quantiles(times, n=20)
    return {
        "entries": count,
        "built_s": built_s,
        "p50_ms": statistics.median(times),
        "p95_ms": cuts[18],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--entries", type=int, default=20_000)
    options = parser.parse_args()
    results = quality(Library(approved()))
    if options.verbose:
        for moment, score, slugs in sorted(results, key=lambda result: result[1]):
            print(f"{score:.2f} {moment['id']} {moment['task']}: {moment['finding']['kind']}")
            print("       found ", ", ".join(slugs), "\n       wanted", moment["helps"])
    mean = statistics.fmean(score for _, score, _ in results)
    fast = speed(options.entries)
    print(f"nDCG@5 {mean:.3f} over {len(results)} moments")
    print(f"{fast['entries']:,} entries: p50 {fast['p50_ms']:.1f} ms, p95 {fast['p95_ms']:.1f} ms")
    return 0 if mean >= 0.85 and fast["p95_ms"] < 50 else 1


if __name__ == "__main__":
    sys.exit(main())
