"""What must hold in every run, watched from outside the schemes.

Read `invariants.py` first; `oracles/` count again what happened. Of `sim/` it may import `checking/oracles/` and
`kernel/`.
"""
