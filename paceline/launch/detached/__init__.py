"""Runs that outlive the terminal in which they were started: in a session of their own, or under systemd.

Or led by another host. Read `leader.py` first. Of `launch/` it may import `local/` and `remote/`.
"""
