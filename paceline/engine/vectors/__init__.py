"""Defines the vectors that travel: values over torch tensors, and the memory they come from.

Read `flat.py` first. Of `engine/` it may import nothing else.
"""
