"""Of `paceline fuzz`: all that is played of a seed, with runs that need checkpoints, which the simulator does not know.

Read `seed_runs.py` first, then `leader_loss.py`. It imports `sim/`, which plays most of it, `checkpoint/` and `core/`.
Of `runtime/` it may import nothing.
"""
