"""Decides what processes that fail mean: who takes part, copies of slices, snapshots, which servers go back to what.

Read `membership.py` first. Nothing here has a clock or a socket. `core/coordination/` and the servers call it, in live
runs and in simulated ones alike, and it returns decisions. Of `core/` it may import `validation/` and the files beside
the folders.
"""
