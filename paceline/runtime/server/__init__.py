"""A server process: one shard of the model, its optimizer and the roles of the scheme that belong there.

Read `server.py` first. Of `runtime/` it may import `checkpointing/`, `kvstore/`, `spec/` and `worker/steps/`.
"""
