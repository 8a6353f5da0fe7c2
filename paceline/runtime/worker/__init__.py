"""A worker's part in a run, as seen from a training loop.

Read `pace.py` first, then `lifecycle.py` (how it joins and leaves). May import all of `runtime/` but the supervisor and
the evaluator.
"""
