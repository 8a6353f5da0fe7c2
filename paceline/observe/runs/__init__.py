"""This folder reads finished runs: their summaries, folders full of them, statistics over seeds.

Read `summary.py` first. Of `observe/` it may import `trace/`.
"""
