"""Servers of a simulation that are lost with all their state: copies, snapshots, and how one is replaced.

Read `server_recovery.py` first. `paceline.core.coordination.server_recovery` and `paceline.core.fault_tolerance` decide
what is carried out here. Of `sim/` it may import `checking/oracles/`, `faults/parties/` and `kernel/`.
"""
