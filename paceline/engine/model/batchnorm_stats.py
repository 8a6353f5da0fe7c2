"""Handles the running statistics of batch normalisation, which belong to the model but have no gradient.

There are two policies. "average": workers average them, weighted by samples, whenever the driver exchanges them.
"local": each keeps its own, and a saved model carries those of the first. The type of their module decides which
buffers these are, never a name. All other buffers are local under either policy.

`num_batches_tracked` travels with them. Averaged statistics are those of the batches of all workers, so their counts
are added up; modules that average cumulatively (`momentum=None`) need that sum to go on from them. In the vector a
count is two float32, its quotient and remainder by `COUNT_BASE`, which stay exact below 2**44.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from paceline.core.errors import ConfigError
from paceline.engine.model.flat_model import pieces_of
from paceline.engine.vectors.buffer_pool import spare
from paceline.engine.vectors.flat import Flat

COUNT_BASE = 1 << 20
POLICIES = ("average", "local")


class Buffers:
    """Holds the batch-norm statistics of `module` as one flat vector with the counts at its end, empty when it has
    none.

    The statistics become views of one buffer, so move the module to its device first (`FlatModel` does). Raises
    ConfigError for an unknown policy, and, naming the buffer, for one that is not float32.
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
        parts = list(dict.fromkeys(part for part, _, _ in found))
        self._batches = [part.num_batches_tracked for part in parts if part.num_batches_tracked is not None]

    def __len__(self) -> int:
        return self._flat.numel() + 2 * len(self._batches)

    @property
    def exchanged(self) -> bool:
        """Returns True if there is anything to average."""
        return self.policy == "average" and len(self) > 0

    def snapshot(self) -> Flat:
        """Returns the statistics as they are now; one copy."""
        return Flat.copy_of(torch.cat([self._flat, _as_floats(self._counts())]))

    def load(self, v: Flat) -> None:
        """Puts statistics into the module. Those without counts leave the counts as they are.

        Raises ValueError when `v` has another length.
        """
        if len(v) not in (len(self), self._flat.numel()):
            raise ValueError(f"{len(v)} statistics for a model with {len(self)}")
        numbers = v.value().to(self._flat.device)
        self._flat.copy_(numbers[: self._flat.numel()])
        if len(v) == len(self):
            for batches, count in zip(self._batches, _as_counts(numbers[self._flat.numel() :]), strict=True):
                batches.copy_(count)

    def average(self, snapshots: Sequence[Flat], samples: Sequence[float], *, for_newcomer: bool = False) -> Flat:
        """Combines several workers' statistics by the policy; worker i counts `samples[i]`. Each may be on any device.

        All count alike where nobody has seen a sample yet. The counts of batches are added up; a newcomer gets their
        mean, since what it publishes is added to the others' counts again. The variance is the mean
        of variances, as everywhere else in practice; the spread between the workers' means is left out.
        """
        if self.policy == "local":
            return snapshots[0]
        total = float(sum(samples))
        parts = [n / total for n in samples] if total > 0 else [1.0 / len(samples)] * len(samples)
        here = [Flat.wrap(v.value().to(self._flat.device)) for v in snapshots]  # a GPU's, and those of CPU workers
        mean = here[0] * parts[0]
        for v, part in zip(here[1:], parts[1:], strict=True):
            mean = mean + v * part
        statistics = self._flat.numel()
        counts = sum(_as_counts(v.value()[statistics:]) for v in here)
        assert isinstance(counts, Tensor)
        counts = counts // len(snapshots) if for_newcomer else counts
        return Flat.wrap(torch.cat([mean.value()[:statistics], _as_floats(counts)]))

    def _counts(self) -> Tensor:
        """Returns the counters `num_batches_tracked` of all layers as one int64 tensor."""
        if not self._batches:
            return torch.empty(0, dtype=torch.int64, device=self._flat.device)
        return torch.stack(self._batches)


def _as_floats(counts: Tensor) -> Tensor:
    """Returns counts (int64 [k]) as quotients and then remainders by COUNT_BASE (float32 [2 k])."""
    quotients = torch.div(counts, COUNT_BASE, rounding_mode="floor")
    return torch.cat([quotients, counts % COUNT_BASE]).to(torch.float32)


def _as_counts(floats: Tensor) -> Tensor:
    """Returns the counts (int64 [k]) of such floats."""
    quotients, remainders = floats.to(torch.int64).chunk(2) if floats.numel() else (floats.to(torch.int64),) * 2
    return quotients * COUNT_BASE + remainders


def _statistics(module: nn.Module) -> list[tuple[_BatchNorm, str, Tensor]]:
    """Returns module, name and tensor of every running mean and variance, in the order of the modules."""
    found: list[tuple[_BatchNorm, str, Tensor]] = []
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
