"""Contains optimizers, on a server as rules over vectors and on a worker in place; their state; learning-rate
schedules.

Read `optimizers.py` first. Of `engine/` it may import `model/`, `sparse/`, `vectors/` and the files beside the folders.
"""
