"""A whole suite of tasks evolved, each with the same budget, and what it came to in one report.

- `suite`: which tasks a folder in the KernelBench form holds
- `rows`: what one task came to, read from the ledger of its run
- `kinds`, `roofline`: what a task mainly computes, and the least time that takes, from its traced graph
- `figures`: rows counted and averaged; never over rows of different devices or fidelities unless asked
- `results`: the folder in which all of it lies, so that a suite can be stopped, killed and carried to another machine
- `plan`: what is left to be run of a suite
- `sitting`: the tasks that have no result yet, several at a time through one driver
- `running`, `watching`: one call of `bench`, and what the person at the terminal sees of it
- `plots`, `report`: `report.json` and a `report.html` that needs nothing else
- `comparing`: two folders of results side by side
- `terminal`: reports and comparisons as text
- `commands`: `bench SUITE`, `bench report DIR` and `bench compare A B`
"""
