"""State of a process that others read: the model of the moment, copies of slices, what a newcomer takes over.

Read `current_model.py` first. Of `live/` it may import `control/`, `node/` and `protocol/`.
"""
