import subprocess
import sys
from pathlib import Path


def test_retrieval_does_not_start_an_installed_jax(tmp_path: Path) -> None:
    """JAX would take three quarters of the GPU's memory from the evaluation."""
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax/__init__.py").write_text("print('jax was started')\n")
    (tmp_path / "jax/lax.py").write_text("def top_k(scores, k):\n    return scores, scores\n")
    code = (
        "import sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "import gpu_runner.experience.retrieval\n"
        "print('retrieval is imported')\n"
        "import jax\n"
        "print('jax can still be imported')\n"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == [
        "retrieval is imported",
        "jax was started",
        "jax can still be imported",
    ]
