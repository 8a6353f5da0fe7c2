"""The coordinator: brings a run up, counts samples, replaces who is lost, ends the run.

Read `coordinator.py` first, then `elasticity.py`. May import all of `live/`.
"""
