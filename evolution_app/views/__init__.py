"""The pages. Each view asks the permission layer first and calls a service to change anything.

`tasks` (submission), `runs` (list and live page), `candidates`, `library`, `accounts` (signing in, theme) and `errors`
answer requests; `highlight` and `diffs` draw source, `reading` gathers what a page shows in a bounded number of queries,
`suite` knows the built-in tasks, `shell` says what every page shows around its content.
"""
