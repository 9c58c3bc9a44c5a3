"""What an evaluation means: raw facts from the children become typed findings, the one to act on first.

One module per source of facts: compile, numerics (with explanations), memory, genuineness, performance (with losses and
profile). Three more read a kernel's text: reading, padding, strides. Facts stay as they came; a module adds the place, the
likely cause and one suggestion. Nothing here changes a verdict.
"""

from gpu_runner.diagnosis.diagnosing import diagnose

__all__ = ["diagnose"]
