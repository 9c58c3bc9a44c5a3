"""The folder through which people and outside agents give kernels to a run: `inbox/NAME.py` under its --out folder.

The first lines may be comments `# author: NAME`, `# island: N`, `# parent: N` and `# move: what was changed`.
"""

import contextlib
import hashlib
import os
import re
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from gpu_runner.core.candidate import Proposal
from gpu_runner.core.contract import check_candidate
from gpu_runner.core.source import MAX_BYTES

_HEADER = re.compile(r"#[ \t]*(author|island|parent|move):[ \t]*(.*)")
_AUTHOR = re.compile(r"[^\w.@ -]")


class Refused(ValueError):
    """A file that cannot become a candidate; the message is for its author."""


def submit(
    folder: Path,
    source: str,
    *,
    author: str,
    island: int = 0,
    parent: int | None = None,
    move: str = "",
) -> Path:
    """Put a kernel into the inbox, whole or not at all. Raises Refused where it cannot become a candidate."""
    header = [f"# author: {' '.join(author.split())}", f"# island: {island}"]
    header += [f"# parent: {parent}"] if parent is not None else []
    header += [f"# move: {' '.join(move.split())}"] if move else []
    text = "\n".join([*header, source])
    read(text)
    inbox = folder / "inbox"
    inbox.mkdir(exist_ok=True)
    path = inbox / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.py"
    if (inbox / "taken" / path.name).exists():
        raise Refused("the run has taken this kernel already")
    draft = path.with_suffix(".new")
    draft.write_text(text, encoding="utf-8")
    os.replace(draft, path)
    return path


def holds_files(folder: Path) -> bool:
    return any((folder / "inbox").glob("*.py"))


def waiting(folder: Path, taken: Collection[str]) -> Iterator[tuple[str, Proposal]]:
    """Files that are not taken yet, the oldest first; the others are moved to `taken/` or, with the reason, to `refused/`."""
    for path in _oldest_first(folder / "inbox"):
        if path.name in taken:
            _put_away(path, "taken")
            continue
        try:
            proposal = read(_content(path))
        except (Refused, UnicodeDecodeError, OSError) as problem:
            _put_away(path, "refused", str(problem))
            continue
        yield path.name, proposal


def read(text: str) -> Proposal:
    """A file of the inbox as a proposal. Raises Refused."""
    facts: dict[str, str] = {}
    for line in text.splitlines():
        found = _HEADER.fullmatch(line.strip())
        if found is None:
            break
        # What `submit` writes stands above what the kernel brings along.
        facts.setdefault(found.group(1), found.group(2).strip())
    problem = check_candidate(text)
    if problem is not None:
        raise Refused(
            f"line {problem.line}: {problem.message}" if problem.line else problem.message
        )
    author = _AUTHOR.sub("", facts.get("author", ""))[:60] or "unknown"
    parent = facts.get("parent")
    return Proposal(
        source=text,
        island=_number(facts.get("island", "0"), "island"),
        parents=() if parent is None else (_number(parent, "parent"),),
        origin=f"person:{author}",
        move=facts.get("move", "")[:300] or f"a kernel by {author}",
    )


def _number(text: str, name: str) -> int:
    if not text.isdecimal() or len(text) > 6:
        raise Refused(f"the {name} is no number: {text[:40]!r}")
    return int(text)


def _oldest_first(inbox: Path) -> list[Path]:
    found = []
    for path in inbox.glob("*.py"):
        # Whoever put it there may take it away.
        with contextlib.suppress(FileNotFoundError):
            found.append((path.lstat().st_mtime, path.name, path))
    return [path for _, _, path in sorted(found)]


def _content(path: Path) -> str:
    """The text of an ordinary file: a pipe would be waited for, and a link lead to what its author may not read."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise Refused("it is no ordinary file; put a copy of the kernel here")
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, encoding="utf-8-sig") as file:
        if os.fstat(descriptor).st_size > MAX_BYTES:
            raise Refused(f"it has more than {MAX_BYTES:,} bytes")
        return file.read()


def _put_away(path: Path, name: str, reason: str = "") -> None:
    """A folder that cannot be written to must not end the run; the file is looked at again then."""
    to = path.parent / name
    with contextlib.suppress(OSError):
        to.mkdir(exist_ok=True)
        os.replace(path, to / path.name)
        if reason:
            (to / f"{path.stem}.txt").write_text(f"{reason}\n", encoding="utf-8")
