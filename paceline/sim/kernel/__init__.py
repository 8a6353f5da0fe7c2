"""The innermost part of a simulation: the queue of events, its processes, what a step gives.

Read `event_queue.py` first. Of `sim/` it may import `cluster/`.
"""
