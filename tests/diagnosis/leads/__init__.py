"""Broken and slow kernels by stage, each with the finding that its diagnosis must lead with."""

from tests.diagnosis.leads import compile, memory, numbers, performance

CASES = [*compile.CASES, *numbers.CASES, *memory.CASES, *performance.CASES]
