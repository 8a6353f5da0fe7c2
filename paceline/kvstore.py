"""A key-value store with the calls of MXNet's KVStore, on Paceline's servers (docs/kvstore.md).

kv = paceline.kvstore.create("dist_sync")
kv.init("w", torch.zeros(3))
kv.push("w", gradient)
kv.pull("w", out=w)
"""

from __future__ import annotations

from paceline.job.kvstore.door import KVStore
from paceline.job.kvstore.values import shares_of
from paceline.launch.kvstore import create

__all__ = ["KVStore", "create", "shares_of"]
