"""The evaluator: looks at the model from time to time, on a copy, and saves the last one.

Read `evaluator.py`. Of `runtime/` it may import `checkpointing/`, `run_folder/`, `spec/`, `worker/` and
`worker/steps/`.
"""
