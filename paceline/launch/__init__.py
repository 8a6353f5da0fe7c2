"""This folder starts and ends the processes of a run.

Read `local/launcher.py` first, then `remote/launcher.py`. `join.py` is how a script's own loop becomes a worker. May
import `runtime/` and everything below it.
"""
