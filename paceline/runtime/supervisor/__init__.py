"""The process of the command: starts all others, watches them, starts them again, ends the run.

Read `supervisor.py` first. May import `runtime/run_folder`, `runtime/server`, `runtime/checkpointing`,
`runtime/collectives` and `runtime/spec`.
"""
