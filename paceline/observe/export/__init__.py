"""This folder writes traces in the formats of other tools, one a file.

Read `csv_files.py` first. Of `observe/` it may import `plots/`, `runs/` and `trace/`.
"""
