"""State of a process that others read: the model of the moment, copies of slices, what a newcomer takes over.

Read `current_model.py` first. May import `live/protocol/control_messages` and what is below it.
"""
