"""What must hold in every run, watched from outside the schemes.

Read `invariants.py` first; `oracles/` count again what happened. May import `sim/kernel`.
"""
