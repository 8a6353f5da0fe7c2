"""Gradient compression: arrays in, bytes out, residuals kept by the caller. One codec, one file.

codec      what a codec is; the registry         encoded    a vector on its way as bytes
kernels    the loops, compiled when first used   stage      between a party and the wire: encodes, decodes, remembers
policy     which codec goes with which scheme
"""

import importlib

from paceline.codec.codec import Codec, Memory, encoders, lookup, names, read
from paceline.codec.encoded import Encoded

for _name in ("fp16", "bf16", "int8", "twobit", "onebit", "sign", "topk", "dgc", "randomk", "powersgd"):
    importlib.import_module(f"{__name__}.{_name}")

__all__ = ["Codec", "Encoded", "Memory", "encoders", "lookup", "names", "read"]
