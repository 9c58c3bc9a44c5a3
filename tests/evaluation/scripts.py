"""Scripts of this folder as processes of their own: one prints what it saw of all its cases, several tests ask for it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def answer_of(script: str, *arguments: str, interprets: bool) -> dict[str, Any]:
    """The JSON object in the last line that the script prints; `interprets`: with Triton as its interpreter."""
    environment = {
        **os.environ,
        "TRITON_INTERPRET": "1",
        "PYTHONPATH": f"{HERE.parents[1]}{os.pathsep}{HERE}",
        "OMP_NUM_THREADS": "1",
    }
    if not interprets:
        del environment["TRITON_INTERPRET"]
    ran = subprocess.run(
        [sys.executable, str(HERE / script), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    return dict(json.loads(ran.stdout.splitlines()[-1]))
