"""A run in virtual time: the scheme, the model and the data are real, the machines and the clock are not.

Read `simulated_run.py` first, then `setup.py` and `workload.py`. May import `runtime/`, `sim/` and what is below them.
"""
