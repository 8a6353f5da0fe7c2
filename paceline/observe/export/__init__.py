"""Traces in the formats of other tools: one a file.

Read `csv_files.py` first. May import `observe/trace`, `observe/plots/timeline` and `core/trace`.
"""
