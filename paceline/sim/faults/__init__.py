"""What goes wrong in a simulation: crashes, lost messages, lying workers; and what the run does about it.

Read `fault_schedule.py` first, then `coordination.py`. Of `sim/` it may import `checking/oracles/`, `cluster/` and
`kernel/`.
"""
