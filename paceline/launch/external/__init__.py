"""Processes that somebody else starts, one by one: how they learn their rank and find the one that leads the run.

Read `detect.py` first, then `follower.py` and `leader.py`. May import `launch/local/launcher` and `launch/fake_ssh`.
"""
