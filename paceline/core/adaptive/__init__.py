"""Measures the step times of workers, and derives what schemes need: groups of like workers, sizes of batches.

Read `step_times.py` first. Of `core/` it may import `paramserver/`, `validation/` and the files beside the folders.
"""
