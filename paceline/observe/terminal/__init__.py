"""What a terminal shows: the live table, the outcome of a race, advice, tables of finished runs.

Read `progress.py` first. May import `observe/runs/run_folders`, `observe/trace` and `core/trace`.
"""
