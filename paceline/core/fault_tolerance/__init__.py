"""Decides what happens when processes fail: who takes part, copies of slices, which servers go back to what.

Read `membership.py` first. Nothing here has a clock or a socket: the drivers call it, and it returns decisions. The
simulator runs `replication.py` and `server_recovery.py`, but has a membership of its own. Of `core/` it may import
`validation/` and the files beside the folders.
"""
