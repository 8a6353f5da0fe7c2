"""Processes that somebody else starts, one by one: how they learn their rank and find the one that leads the run.

Read `detect.py` first, then `follower.py` and `leader.py`. Of `launch/` it may import `local/` and `remote/`.
"""
