"""Finding out what a candidate is worth, in processes that cannot hurt the host or each other.

`pool` is what the rest of the runner calls. It keeps one slot per device; in a slot a *judge* (our
code only) checks and times *players* (the reference, baselines, the candidate). Every one of them
is a child forked by `children` from a warm zygote inside the `sandbox`, and speaks over a `channel`
of bounded JSON. This package never imports torch or triton; `child` is what runs in the children
and is named by string only.

- `channel`, `errors`: what crosses between processes, and how it fails
- `sandbox`, `children`: bubblewrap, zygotes, isolated children with limits
- `devices`, `settings`: which device, what is recorded of it, its lock
- `protocol`: the messages of judge and player; `static_checks`: before anything runs
- `pool`: slots, deadlines, results
"""
