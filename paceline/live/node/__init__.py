"""One process that takes part: its roles, the calls it has open, what it publishes of its state.

Read `node.py` first, then `effect_loop.py`, which runs the role's generator. Of `live/` it may import `collectives/`
and `protocol/`.
"""
