"""The innermost part of a simulation: the queue of events, its processes, what a step gives.

Read `event_queue.py` first. May import `core/` and `sim/cluster/model`.
"""
