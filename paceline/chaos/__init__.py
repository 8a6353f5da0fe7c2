"""Chaos injects real faults into a real run of processes: it draws them from a seed and reports how the run recovers.

Read `plan.py` first, then `runner.py`. May import `runtime/` and everything below it.
"""
