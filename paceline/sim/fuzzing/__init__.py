"""Runs in which everything that can go wrong is drawn from a seed, with all invariants watching.

Read `fuzz.py` first; `runs/` has the kinds of runs of a seed. Of `sim/` it may import `checking/`, `checking/oracles/`,
`cluster/`, `faults/coordination/`, `faults/servers/`, `fuzzing/runs/`, `kernel/` and the files beside the folders.
"""
