"""Finished runs: their summaries, folders full of them, statistics over seeds.

Read `summary.py` first. May import `observe/trace` and `core/trace`.
"""
