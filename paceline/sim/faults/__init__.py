"""What goes wrong in a simulation: crashes, lost messages, lying workers; and what the run does about it.

Read `fault_schedule.py` first, then `membership.py`. May import `sim/kernel`, `sim/cluster/model` and the oracles.
"""
