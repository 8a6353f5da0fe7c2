"""A key-value store with the calls of MXNet's KVStore, on Paceline's servers (docs/kvstore.md).

kv = paceline.kvstore.create("dist_sync")
kv.init("w", torch.zeros(3))
kv.push("w", gradient)
kv.pull("w", out=w)
"""

from __future__ import annotations

from paceline.compat.mxnet.api import KVStore
from paceline.compat.mxnet.arguments import shares_of
from paceline.compat.mxnet.create import create

__all__ = ["KVStore", "create", "shares_of"]
