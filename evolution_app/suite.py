"""The built-in tasks of `examples/`, read as text; nothing of them is imported here."""

import ast
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from django.conf import settings

LEVELS: Final = {
    "level1": "Level 1: one operation",
    "level2": "Level 2: a few operations to fuse",
    "level3": "Level 3: whole blocks",
    "serving": "Serving",
}
"""Folders of the suite, in the order in which a page lists them, and what they are called there."""


@dataclass(frozen=True)
class Example:
    path: str  # level2/mlp_block
    title: str
    summary: str
    source: str

    @property
    def level(self) -> str:
        """What a page calls the part of the suite that it belongs to."""
        return LEVELS[self.path.partition("/")[0]]


@lru_cache(maxsize=1)
def examples() -> tuple[Example, ...]:
    """All of them, by level and name; read once per process."""
    root = Path(settings.BASE_DIR) / "examples"
    files = [file for level in LEVELS for file in sorted((root / level).glob("*.py"))]
    return tuple(_example(root, file) for file in files if not file.name.startswith("_"))


def find(path: str) -> Example | None:
    return next((example for example in examples() if example.path == path), None)


def path_of(source: str) -> str:
    """The path of the built-in task with exactly this source, or empty."""
    return next((example.path for example in examples() if example.source == source), "")


def _example(root: Path, file: Path) -> Example:
    source = file.read_text(encoding="utf-8")
    summary = (ast.get_docstring(ast.parse(source)) or "").split("\n\n")[0]
    path = file.relative_to(root).with_suffix("").as_posix()
    return Example(path, file.stem.replace("_", " "), " ".join(summary.split()), source)
