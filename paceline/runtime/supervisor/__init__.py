"""The process of the command: starts all others, watches them, starts them again, ends the run.

Read `supervisor.py` first. Of `runtime/` it may import `checkpointing/`, `collectives/`, `run_folder/`, `server/` and
`spec/`.
"""
