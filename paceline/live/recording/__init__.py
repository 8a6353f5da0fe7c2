"""Records what comes in at each process of a live run, and replays it without processes, sockets or a clock.

Read `coordinator_replay.py` first, then `coordinator_recorder.py`. Of `live/` it may import `coordinator/`, `node/`
and `protocol/`.
"""
