"""This folder is the live page, which shows an active, finished or simulated run from its trace alone.

Read `state.py` first (records in, what is known of the run out), then `page_data.py` (that as JSON) and `serving/`
(HTTP). Of `observe/` it may import `export/`, `formatting/`, `runs/`, `trace/`, `watch/panels/` and `watch/waits/`.
"""
