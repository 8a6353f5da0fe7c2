"""A server process: one shard of the model, its optimizer and the roles of the scheme that belong there.

Read `server.py` first. May import `runtime/kvstore`, `runtime/checkpointing` and `runtime/spec`.
"""
