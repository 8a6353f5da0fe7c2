"""This folder reads runs: their summaries, folders full of them, statistics over seeds, whether a model collapsed.

Read `summary.py` first. Of `observe/` it may import `trace/` and `formatting/`.
"""
