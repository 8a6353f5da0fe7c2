"""Bounds of what one process may claim to another: declared beside each field, checked where messages arrive.

Read `bounds.py` first. May import `core/` alone.
"""
