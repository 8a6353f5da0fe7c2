"""The coordinator of a live run: its inputs come from a transport, and what it decides is carried out here.

Read `coordinator.py` first; the machine that decides is in `paceline.core.coordinator`. Of `live/` it may import
`collectives/`, `control/`, `node/` and `protocol/`.
"""
