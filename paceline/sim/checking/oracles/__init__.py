"""What a run did, counted once more from outside: one family of invariants a file.

Read `contributions.py` first. The oracles see messages and records alone; what is promised they read off the parameters
(`promises.py`), not off the scheme that is watched. Of `sim/` it may import `kernel/`.
"""
