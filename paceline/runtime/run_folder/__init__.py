"""The folder of a run: its lock, `status.json`, the statistics for `summary.json`, and what is left where.

Read `status_file.py` first. Of `runtime/` it may import `spec/`.
"""
