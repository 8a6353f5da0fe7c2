"""The verbs of `paceline`: one file each, `main(arguments)` returns the exit code.

Read `train.py` first. Of `cli/` it may import `support/`.
"""
