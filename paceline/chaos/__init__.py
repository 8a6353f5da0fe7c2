"""Real faults during a real run of processes: drawn from a seed, carried out, and what the run made of them.

Read `plan.py` first, then `runner.py`. May import `runtime/` and everything below it.
"""
