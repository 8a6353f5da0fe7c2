"""Provides the calls of MXNet's KVStore, on the servers of `runtime/kvstore/`.

Read `api.py` first (what a script calls), then `distributed.py` and `local.py` (where its values are). Of `compat/` it
may import nothing else.
"""
