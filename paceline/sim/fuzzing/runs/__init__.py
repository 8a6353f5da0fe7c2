"""The kinds of runs that a seed may have beside that of its drawn faults: what each draws, and what must hold in it.

Read `stopping.py` first. Of `sim/` it may import `checking/`, `checking/oracles/`, `cluster/`, `faults/coordination/`,
`faults/parties/`, `faults/servers/`, `kernel/` and the files beside the folders.
"""
