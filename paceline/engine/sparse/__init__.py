"""Handles embeddings whose gradients are rows: vectors hold tables of which only some rows are not zero.

Read `sparse_vector.py` first. Of `engine/` it may import `vectors/`.
"""
