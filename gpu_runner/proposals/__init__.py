"""Where candidates come from: every source returns drafts, the evolution decides which to evaluate.

- `compiler`: torch.compile's own fusion, rewritten as standalone Triton; the first candidates of a run.
- `catalogue`: hand-written templates for what the compiler leaves to libraries.
- `rewrites`, `tuning`: changes of a parent by rule, of its structure and of its launch parameters.
- `models`: edits by language models.
- `child`: what of this reads or runs submitted code; named by string only, run in sandboxed children.
"""
