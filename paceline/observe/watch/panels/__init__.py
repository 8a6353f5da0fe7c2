"""This folder is what the live page has beside the picture of the run: progress, alerts, logs, other runs.

Read `run_progress.py` first. The files know plain values and files of a run, and nothing of the page's own state. Of
`observe/` it may import `trace/`.
"""
