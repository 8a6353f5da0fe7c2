"""A model of which each process of a worker holds a part: which part, and the whole of it on the first one.

Read `blocks.py` first, then `local_parts.py`, `local_state.py` and `gathered_model.py`. Of `engine/` it may import
`model/`, `optim/`, `sparse/` and the files beside the folders.
"""
