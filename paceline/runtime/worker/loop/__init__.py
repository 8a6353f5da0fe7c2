"""The parts of a worker between the training loop and its scheme: which samples, how many, one step, when it is over.

Read `step_runner.py` first, then `batch_feed.py`. Of `runtime/` it may import `checkpointing/`, `spec/`,
`worker/schedules/` and `worker/steps/`.
"""
