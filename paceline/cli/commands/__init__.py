"""The verbs of `paceline`: one file each, `main(arguments)` returns the exit code.

Read `train.py` first. May import everything but other verbs; what two verbs share is in `cli/support/`.
"""
