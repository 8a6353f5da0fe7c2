"""The codecs: one file, one published way of sending fewer bytes.

Read `topk.py` first. May import `codec/base`, `codec/kernels/cpu` and `core/`.
"""
