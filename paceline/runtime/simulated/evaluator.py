"""Evaluates the model of a simulated run from time to time, on a copy. An evaluation takes no virtual time."""

from __future__ import annotations

from pathlib import Path

from paceline.config import Config
from paceline.core.errors import Diverged
from paceline.core.trace import Evaluated
from paceline.engine.data.dataset import Splits
from paceline.engine.model.batchnorm_stats import Buffers
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.vectors.flat import Flat, finite
from paceline.runtime.evaluator.evaluator import DIVERGED, WAY_OUT, save_model
from paceline.runtime.evaluator.subject import judge
from paceline.runtime.worker.train_loop import build_model

SAMPLES_SHARE = 4
"""An evaluation of n test samples costs about a third of training on them; n divided by this must be trained between
two evaluations."""


class Judge:
    """Evaluates when it is `due`: as often as `--eval-every` says, in virtual seconds, and while that stays cheaper
    than training."""

    def __init__(self, config: Config, splits: Splits) -> None:
        self._test, self._chance = splits.test, splits.test.chance
        self._module = build_model(config, splits)
        self._flat = FlatModel(self._module)
        self._buffers = Buffers(self._module, config.model.buffers)
        self._every_s, self._every_samples = config.evaluation.every, len(splits.test) / SAMPLES_SHARE
        self._due_s = self._due_samples = 0.0
        self.looked_at: float | None = None

    def due(self, now: float, samples: int) -> bool:
        """Returns True if an evaluation is due at `now` virtual seconds, after `samples` of all workers."""
        return now >= self._due_s and samples >= self._due_samples

    def look(self, now: float, samples: int, w: Flat, statistics: Flat) -> Evaluated:
        """Evaluates the model with weights `w` and batch-norm `statistics`. Raises Diverged where one is not finite."""
        if not (finite(w) and finite(statistics)):
            left = "none" if self.looked_at is None else f"that of {self.looked_at:.1f} s"
            raise Diverged(f"{DIVERGED} after {now:.1f} s; the last finite one is {left}; {WAY_OUT}")
        self.looked_at = now
        self._due_s, self._due_samples = now + self._every_s, samples + self._every_samples
        self._flat.load(w)
        self._buffers.load(statistics)
        accuracy, loss = judge(self._module, self._test)
        return Evaluated(at=now, accuracy=accuracy, loss=loss, samples=samples, seconds=0.0, chance=self._chance)

    def save(self, path: Path) -> None:
        """Saves the model as it was evaluated last, if it was."""
        if self.looked_at is not None:
            save_model(self._module, path)
