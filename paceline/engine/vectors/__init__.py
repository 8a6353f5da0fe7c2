"""The vectors that travel: values over torch tensors, and the memory they come from.

Read `flat.py` first. May import `core/` alone.
"""
