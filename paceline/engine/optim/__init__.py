"""Optimizers, on a server as rules over vectors and on a worker in place; their state; learning-rate schedules.

Read `optimizers.py` first. May import `engine/vectors`, `engine/sparse/sparse_vector`, `engine/model` and `core/`.
"""
