"""The web side of Kernel Foundry, and the only owner of its tables.

`models` hold the rows and the rules of single tables; `services` what people may do, over several tables,
audited; `recording` what a runner writes; `permissions` who sees and may do what; `events` the append-only
stream of a run that pages, sockets, the HTTP API and the command line follow. Nothing here imports torch or
runs submitted code.
"""
