"""What goes wrong in a simulation: crashes, lost messages, lying workers; and what the run does about it.

Read `fault_schedule.py` first: it makes events of what a cluster says will go wrong. `links/` is the network then,
`servers/` and `parties/` are the processes, and `coordination/` is the coordinator among them. Of `sim/` it may import
`cluster/` and `kernel/`.
"""
