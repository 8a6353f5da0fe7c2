"""This folder draws figures of runs: the curve of one, several against each other, by group; one kind of figure a file.

Read `catalogue.py` first; `style.py` has sizes, colours and axes of all. Of `observe/` it may import
`formatting/`, `runs/`, `terminal/` and `trace/`.
"""
