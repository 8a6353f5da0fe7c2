"""Compresses gradients: arrays go in, bytes come out, the caller keeps the residuals. One codec, one file of
`algorithms/`.

Read `base.py` first, then `algorithms/topk.py`; `pipeline/` applies codecs to messages. May import `core/`.
"""

import importlib

from paceline.codec.base import Codec, ResidualMemory, encoders, lookup, names, read
from paceline.codec.encoded import Encoded

for _name in ("fp16", "bf16", "int8", "twobit", "onebit", "sign", "topk", "dgc", "randomk", "sparse2bit", "powersgd"):
    importlib.import_module(f"{__name__}.algorithms.{_name}")

__all__ = ["Codec", "Encoded", "ResidualMemory", "encoders", "lookup", "names", "read"]
