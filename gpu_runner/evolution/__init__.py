"""The search as pure functions over frozen values: no rows, no clock, no I/O; randomness is an argument.

A run is a fold. `engine.begin` makes the first state; `engine.ask` says what to try next, `engine.drafted` records what came
of the request, `engine.told` takes an evaluated candidate in. Whoever keeps the order of those answers and the seed can
replay a run exactly. Parts: types (values), strategies (what makes islands differ), seeding (the first candidates), fitness,
selection, archive (MAP-Elites), migration, crossover (of launch parameters), plans (ideas that outlive bad code), bandit (gain
per cost), texts (what models are told), engine, notes (for the ledger), replay, stopping. What each is worth: `docs/search.md`.
"""
