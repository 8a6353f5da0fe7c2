"""Step times of workers, and what schemes make of them: groups of like workers, sizes of batches.

Read `step_times.py` first. Of `core/` it may import `paramserver/`, `validation/` and the files beside the folders.
"""
