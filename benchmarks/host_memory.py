"""How much host memory the runner and its children hold at most while they judge candidates on a CPU.

    python benchmarks/host_memory.py [--candidates 20] [--slots 1]

Honest kernels of tests/exploits are judged one after the other by one pool; a thread adds up the memory of this process and all
its descendants ten times a second: proportional set sizes, so that what forked children share is counted once.
Prints one JSON object; exit 1 if the peak is above 3 GB.
"""

import argparse
import json
import sys
import threading
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from gpu_runner.evaluation.errors import RunnerError
from gpu_runner.evaluation.pool import open_pool
from gpu_runner.evaluation.settings import EvaluationSettings
from tests.evaluation.exploit_files import written

LIMIT_BYTES = 3_000_000_000
EVERY_S = 0.1


class Gauge:
    """The most memory that this process and its descendants held at once, and how many they were then."""

    def __init__(self) -> None:
        self.peak_bytes = 0
        self.processes = 0
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Gauge":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._stopped.wait(EVERY_S):
            sizes = [_size(process) for process in (me, *me.children(recursive=True))]
            if sum(sizes) > self.peak_bytes:
                self.peak_bytes, self.processes = sum(sizes), len(sizes)


def _size(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().pss)
    except psutil.Error:  # it has ended meanwhile
        return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--candidates", type=int, default=20)
    parser.add_argument("--slots", type=int, default=1)
    options = parser.parse_args()
    work = list(written("honest"))[: options.candidates]
    verdicts: dict[str, int] = {}
    settings = EvaluationSettings(device="cpu", slots=options.slots)
    with Gauge() as gauge, open_pool(settings) as pool:
        for exploit in work:
            try:
                verdict = str(pool.evaluate(exploit.task, exploit.candidate).verdict)
            except RunnerError as error:
                verdict = type(error).__name__
            verdicts[verdict] = verdicts.get(verdict, 0) + 1
    result = {
        "peak_gb": round(gauge.peak_bytes / 1e9, 3),
        "processes": gauge.processes,
        "limit_gb": LIMIT_BYTES / 1e9,
        "candidates": len(work),
        "verdicts": verdicts,
    }
    print(json.dumps(result))
    sys.exit(gauge.peak_bytes > LIMIT_BYTES)


if __name__ == "__main__":
    main()
