"""Who trains which samples, and how many: the work queue of samples, and runs that end after so many.

Read `sample_leases.py` first. May import `core/` alone.
"""
