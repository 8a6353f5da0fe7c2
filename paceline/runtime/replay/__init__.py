"""Replays recordings of runs: makes the machines of a recorded run again, and compares what they decide.

Read `run_replay.py` first. Of `runtime/` it may import `run_folder/`, `server/`, `spec/` and `supervisor/`.
"""
