"""The evaluator: looks at the model from time to time, on a copy, and saves the last one.

Read `evaluator.py`. May import `runtime/checkpointing` and `runtime/spec`.
"""
