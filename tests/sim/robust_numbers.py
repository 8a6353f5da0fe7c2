"""What robust means want to know of numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


class Numbers:
    """What robust means want to know of numpy arrays."""

    def norm(self, v: Any) -> float:
        return float(np.linalg.norm(v))

    def trimmed(self, vectors: Sequence[Any], cut: int) -> Any:
        ordered = np.sort(np.stack(vectors), axis=0)
        return ordered[cut : len(vectors) - cut].mean(axis=0)
