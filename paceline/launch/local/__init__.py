"""This folder starts and ends the processes of a run on this machine.

Read `launcher.py` first (forks of one warm process, `fork_server.py`), then `script_launcher.py` (somebody's own
script). Of `launch/` it may import nothing else.
"""
