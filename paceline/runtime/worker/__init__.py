"""This folder is a worker's part in a run, as seen from a training loop.

Read `pace.py` first, then `joining.py` (its parts) and `lifecycle.py` (how it joins and leaves). Of `runtime/` it may
import `checkpointing/`, `collectives/`, `server/`, `spec/`, `worker/loop/`, `worker/schedules/`, `worker/sharing/` and
`worker/steps/`.
"""
