"""The coordinator brings a run up, counts samples, replaces processes that are lost, and ends the run.

Read `coordinator.py` first; the parts that decide while training goes on are in `paceline.core.coordination`. Of
`live/` it may import `collectives/`, `control/`, `node/` and `protocol/`.
"""
