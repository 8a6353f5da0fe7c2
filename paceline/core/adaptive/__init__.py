"""Step times of workers, and what schemes make of them: groups of like workers, sizes of batches.

Read `step_times.py` first. May import `core/` alone.
"""
