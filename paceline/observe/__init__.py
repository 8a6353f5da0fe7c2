"""What a run leaves behind and how it is shown. Reads traces and summaries; no scheme, driver or model in here.

store     trace.jsonl: written while the run goes on, read back lazily      text      numbers as people read them
summary   summary.json: one run in a few numbers, per worker                figures   curve of one run, race of several
progress  what a terminal, or a log file, shows during a run                race      which scheme won, and why
"""
