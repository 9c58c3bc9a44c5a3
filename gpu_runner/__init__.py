"""The runner: judges, diagnoses and evolves Triton kernels. Everything here but `worker` and `store` works without Django.

`core` is what the web pages share with the runner; `evaluation` judges one candidate; `proposals` makes new candidates;
`diagnosis` says why a candidate is wrong or slow; `evolution` decides what to try next; `experience` remembers what helped;
`driver` runs the loop over a ledger, which is either `journal` (files) or `store` (the database).
"""
