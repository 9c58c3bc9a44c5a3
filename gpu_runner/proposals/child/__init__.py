"""What reads, traces or compiles submitted code to make proposals; runs in sandboxed children only.

Entries, by string: `compiler:compile_source`, `trace:trace` and those of the rewrites and tuning. The compiler's parts
in the order of their work: `compiler_sizes` (what a size is), `compiler_functions` (torch functions that keep sizes
symbolic), `compiler_capture` (inductor's program), `compiler_program` (its kernels and steps), `compiler_kernels` and
`compiler_helpers` (plain kernels), `compiler_launch` (block sizes), `compiler_class` (the constructor) and
`compiler_emit` (the module).
"""
