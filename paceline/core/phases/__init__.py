"""Runs one scheme after the other: how phases are written, when one ends, and roles that change with them.

Read `grammar.py` first. Of `core/` it may import `validation/` and the files beside the folders.
"""
