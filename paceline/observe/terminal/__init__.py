"""This folder makes what a terminal shows: the live table, the outcome of a race, advice, tables of finished runs.

Read `progress.py` first. Of `observe/` it may import `runs/` and `formatting/`.
"""
