"""A batch in equal parts, one a device."""

from __future__ import annotations

from mxnet.context import Context
from mxnet.ndarray import NDArray


def split_and_load(data: NDArray, ctx_list: list[Context]) -> list[NDArray]:
    parts = data.tensor.chunk(len(ctx_list))
    return [NDArray(part, ctx) for part, ctx in zip(parts, ctx_list, strict=True)]
