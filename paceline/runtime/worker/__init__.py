"""A worker's part in a run, as seen from a training loop.

Read `pace.py` first, then `lifecycle.py` (how it joins and leaves). Of `runtime/` it may import `checkpointing/`,
`collectives/`, `server/`, `spec/` and `worker/steps/`.
"""
