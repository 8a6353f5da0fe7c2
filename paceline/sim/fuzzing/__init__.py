"""Runs in which everything that can go wrong is drawn from a seed, with all invariants watching.

Read `fuzz.py` first. Of `sim/` it may import `checking/`, `checking/oracles/`, `cluster/`, `faults/coordination/`,
`faults/parties/`, `faults/servers/`, `kernel/` and the files beside the folders.
"""
