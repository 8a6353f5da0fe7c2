"""This folder is who waits for whom in a run: measured, and judged once for all parts of the page.

Read `verdict.py` first (what is found, and when), then `who_waits.py` (records in). Of `observe/` it may import
`trace/`.
"""
