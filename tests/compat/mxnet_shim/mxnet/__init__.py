"""The names of MXNet 1.x that its tests of KVStore and Trainer use, over torch and `paceline.kvstore`."""

from __future__ import annotations

from mxnet import autograd, context, gluon, init, kvstore, lr_scheduler, ndarray, optimizer, random, test_utils
from mxnet import kvstore as kv
from mxnet import ndarray as nd
from mxnet.base import MXNetError
from mxnet.context import Context, cpu, gpu

__all__ = [
    "Context",
    "MXNetError",
    "autograd",
    "context",
    "cpu",
    "gluon",
    "gpu",
    "init",
    "kv",
    "kvstore",
    "lr_scheduler",
    "nd",
    "ndarray",
    "optimizer",
    "random",
    "test_utils",
]
