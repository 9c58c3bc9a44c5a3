import ast
import gc
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from gpu_runner.core.source import MAX_BYTES, Problem, _parse, check_bounds, fingerprint, parse

HOSTILE = {
    "brackets": "(" * 10_000,
    "minus signs": "-" * 10_000 + "1",
    "not": "x = " + "not " * 5_000 + "1",
    "lambdas": "x = " + "lambda: " * 5_000 + "1",
    "additions": "x = " + "a+" * 30_000 + "a",
    "attributes": "x = " + "a." * 9_000 + "a",
    "calls": "f" + "()" * 9_000,
    "conditionals": "x = " + "a if b else " * 4_000 + "c",
    "branches": "if a:\n pass\n" + "elif b:\n pass\n" * 4_000,
    "indentation": "".join(" " * depth + "if a:\n" for depth in range(200)) + " " * 200 + "pass",
    "powers": "x = " + "2**" * 10_000 + "2",
    "walrus": "x = " + "(y:=" * 5_000 + "1" + ")" * 5_000,
}


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE)
def test_what_would_exhaust_a_parser_is_refused_before_it_sees_it(source: str) -> None:
    started = time.perf_counter()
    problem = check_bounds(source)

    assert isinstance(problem, Problem)
    assert problem.kind == "syntax"
    assert time.perf_counter() - started < 5


def test_a_source_of_exactly_64_kib_is_accepted_and_one_byte_more_is_not() -> None:
    line = "x = 1\n"
    fitting = line * (MAX_BYTES // len(line)) + "#" * (MAX_BYTES % len(line))

    assert check_bounds(fitting) is None
    assert check_bounds(fitting + "#") == Problem(
        "too_large", f"the source has {MAX_BYTES + 1:,} bytes; at most {MAX_BYTES:,} are accepted"
    )


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("x = 1\nif x:\n  y = (\n", 3),
        ("def f(:\n    pass\n", 1),
        ("x = 1\n  y = 2\n", 2),
        ("a = 1\nb = '\n", 2),
        ("a\x00b", 1),
    ],
)
def test_a_syntax_error_names_its_line(source: str, line: int) -> None:
    problem = parse(source)

    assert isinstance(problem, Problem)
    assert problem.kind == "syntax"
    assert problem.line is not None
    assert abs(problem.line - line) <= 1


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("# coding: rot13\nx = 1\n", 1),
        ("#!/usr/bin/python\n# -*- coding: latin-1 -*-\nx = 1\n", 2),
        ("\r# vim: set fileencoding=utf-7 :\rx = 1\n", 2),
    ],
)
def test_another_encoding_is_refused_with_its_line(source: str, line: int) -> None:
    problem = parse(source)

    assert isinstance(problem, Problem)
    assert (problem.kind, problem.line) == ("syntax", line)


@pytest.mark.parametrize(
    "source",
    ["# coding: utf-8\nx = 1\n", "x = 1\n# coding: rot13\n", "x = 1\n\n# coding: rot13\n"],
)
def test_what_python_reads_as_utf_8_is_accepted(source: str) -> None:
    assert isinstance(parse(source), ast.Module)


def test_lone_surrogates_are_a_problem_and_not_a_crash() -> None:
    assert parse("x = '\ud800'") == Problem("syntax", "the source is not valid Unicode text")


def test_ordinary_kernels_are_within_the_bounds() -> None:
    source = (
        "table = ["
        + ", ".join(str(i) for i in range(3_000))
        + "]\n"
        + "x = a + b * (c - d)\n" * 500
    )

    assert isinstance(parse(source), ast.Module)


def test_the_fingerprint_ignores_comments_docstrings_and_layout_only() -> None:
    plain = "def f(x):\n    return x + 1\n"
    dressed = '"""Title."""\n\n\ndef f( x ):  # one\n    """Say."""\n    return (x + 1)\n'

    assert fingerprint(plain) == fingerprint(dressed)
    assert fingerprint(plain) != fingerprint(plain.replace("1", "2"))
    assert fingerprint("def f(:") != fingerprint("def g(:")


def test_several_threads_parse_at_once() -> None:
    class Handover:
        """Garbage whose collection lets another thread run in the middle of making a tree."""

        def __init__(self) -> None:
            self.itself = self

        def __del__(self) -> None:
            time.sleep(0)

    source = "def f(a):\n    return [g(a, x=[b, (1, {'k': v})]) for v in b]\n" * 6

    def work() -> bool:
        made = []
        for _ in range(100):
            Handover()
            made.append(_parse(source))
        return all(isinstance(tree, ast.Module) for tree in made)

    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    sys.setswitchinterval(1e-6)
    gc.set_threshold(1)
    try:
        with ThreadPoolExecutor(6) as threads:
            assert all(found.result() for found in [threads.submit(work) for _ in range(6)])
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*thresholds)
