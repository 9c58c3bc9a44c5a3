"""A whole suite of tasks evolved, each with the same budget, and what it came to in one report.

- `suite`: which tasks a folder in the KernelBench form holds
- `rows`: what one task came to, read from the ledger of its run
- `kinds`, `roofline`: what a task mainly computes, and the least time that takes, from its traced graph
- `figures`: rows counted and averaged; never over rows of different devices or fidelities unless asked
- `results`: the folder in which all of it lies, so that a suite can be stopped, killed and carried to another machine
- `sitting`: the tasks that have no result yet, several at a time through one driver
- `plots`, `report`: `report.json` and a `report.html` that needs nothing else
- `comparing`: two folders of results side by side
- `commands`: `bench SUITE` and `bench compare A B`
"""
