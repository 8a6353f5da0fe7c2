"""This folder shows what a run leaves behind: traces, summaries, tables, figures, the live page.

Read `trace/trace_file.py` first, then `runs/summary.py`. Reads what lies in a run's folder: no scheme, driver or model.
May import `core/trace` and `core/errors` alone.
"""
