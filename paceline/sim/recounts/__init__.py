"""What a run did, counted once more from outside: one family of invariants a file.

`contributions` (of one shard), `means`, `mass`, `deliveries` and `samples` see messages and records alone. What is
promised they read off the parameters (`promises`), not off the scheme that is watched.
"""
