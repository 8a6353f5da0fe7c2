"""Each file has one codec: one published way of sending fewer bytes.

Read `topk.py` first. Of `codec/` it may import `kernels/` and the files beside the folders.
"""
