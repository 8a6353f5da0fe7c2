"""Running statistics of batch normalisation: part of the model, but nobody's gradient.

Two policies. "average": workers average them, weighted by samples, whenever the driver exchanges them. "local": each
keeps its own, and a saved model carries those of the first. Which buffers these are is decided by the type of their
module, never by a name. All other buffers are local under either policy.

`num_batches_tracked` stays local too: it counts this process's own batches, and matters only to modules that
average cumulatively (`momentum=None`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from paceline.core.errors import ConfigError
from paceline.engine.flatten import pieces_of
from paceline.engine.pool import spare
from paceline.engine.vector import Flat

POLICIES = ("average", "local")


class Buffers:
    """The batch-norm statistics of `module` as one flat vector, empty when it has none.

    They become views of one buffer, so move the module to its device first (`FlatModel` does). Raises ConfigError
    for an unknown policy, and, naming the buffer, for one that is not float32.
    """

    def __init__(self, module: nn.Module, policy: str = "average") -> None:
        if policy not in POLICIES:
            raise ConfigError(f"buffers = {policy!r}: must be one of {', '.join(POLICIES)}")
        self.policy = policy
        found = _statistics(module)
        tensors = [tensor for _, _, tensor in found]
        device = tensors[0].device if tensors else torch.device("cpu")
        self._flat = spare(sum(t.numel() for t in tensors), device)
        for (part, name, old), view in zip(found, pieces_of(self._flat, tensors), strict=True):
            view.copy_(old)
            setattr(part, name, view)

    def __len__(self) -> int:
        return self._flat.numel()

    @property
    def exchanged(self) -> bool:
        """Whether there is anything to average."""
        return self.policy == "average" and len(self) > 0

    def snapshot(self) -> Flat:
        """The statistics as they are now; one copy."""
        return Flat.copy_of(self._flat)

    def load(self, v: Flat) -> None:
        """Raises ValueError when `v` has another length."""
        if len(v) != len(self):
            raise ValueError(f"{len(v)} statistics for a model with {len(self)}")
        v.copy_into(self._flat)

    def average(self, snapshots: Sequence[Flat], samples: Sequence[float]) -> Flat:
        """What the policy makes of several workers' statistics, of which worker i counts `samples[i]`.

        The variance is the mean of variances, as everywhere else in practice; what differs between the workers' means
        is left out. Raises ValueError when nobody has seen a sample.
        """
        if self.policy == "local":
            return snapshots[0]
        total = float(sum(samples))
        if not total > 0:
            raise ValueError("statistics of no samples have no average")
        mean = snapshots[0] * (samples[0] / total)
        for v, n in zip(snapshots[1:], samples[1:], strict=True):
            mean = mean + v * (n / total)
        return mean


def _statistics(module: nn.Module) -> list[tuple[nn.Module, str, Tensor]]:
    found: list[tuple[nn.Module, str, Tensor]] = []
    for path, part in module.named_modules():
        if not isinstance(part, _BatchNorm):
            continue
        for name in ("running_mean", "running_var"):
            tensor = getattr(part, name)
            if tensor is None:  # track_running_stats=False
                continue
            if tensor.dtype != torch.float32:
                raise ConfigError(f"buffer {path}.{name} is {tensor.dtype}, not torch.float32")
            found.append((part, name, tensor))
    return found
