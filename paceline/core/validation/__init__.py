"""Bounds what one process may claim to another: bounds are declared beside each field, checked where messages arrive.

Read `bounds.py` first. Of `core/` it may import the files beside the folders.
"""
