"""Decides who trains which samples, and how many: the work queue of samples, and runs that end after so many.

Read `sample_leases.py` first. Of `core/` it may import the files beside the folders.
"""
