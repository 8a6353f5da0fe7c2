"""Checks the size of batches, and makes the lines about a run that is not what its settings alone say."""

from __future__ import annotations

from paceline.config import Config
from paceline.core.errors import ConfigError
from paceline.engine.data.partition_plan import parse_partition
from paceline.observe.formatting.number_format import counted
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.spec.rate_scale import rate_note

EQUAL = ("uniform", "class")
"""Partitions whose parts are known to be equal before the labels are read."""


def check_batch_size(config: Config, train_samples: int) -> None:
    """Raises ConfigError where one mini-batch would hold more samples than there are."""
    size = config.data.batch_size
    if size > train_samples:
        found = f"{config.data.name} has {counted(train_samples, 'sample')} to train on"
        raise ConfigError(f"--batch-size {size}: {found}; take a smaller one")


def batch_size_note(config: Config, train_samples: int) -> str:
    """Returns a line for the user where no worker has enough samples for a whole mini-batch; otherwise ""."""
    size, workers = config.data.batch_size, config.cluster.workers
    share = -(-train_samples // workers)
    if parse_partition(config.data.partition).kind not in EQUAL or size <= share:
        return ""
    return (
        f"--batch-size {size} is more than a worker's share of the data: each of {workers} workers has "
        f"{counted(share, 'sample')} at most, so a step is one pass over them"
    )


def short_run_note(config: Config, train_samples: int) -> str:
    """Returns a line where the run is short for its scheme, with the rounds that were shortened for it; else ""."""
    before, after = config.scheme().completed({}, train_samples), config.scheme_of(train_samples)
    changed = {key: value for key, value in after.parameters().items() if value != getattr(before, key)}
    steps = config.steps_each(train_samples)
    if not changed:
        few, why = after.few_steps
        if not 0 < steps < few:
            return ""
        return f"{after.name}: {steps} steps of a worker are a short run for it, which may end below bsp: {why}"
    now = ", ".join(f"{key} is {_shown(value)}, not {_shown(getattr(before, key))}" for key, value in changed.items())
    flag = f"--{after.name}.{next(iter(changed)).replace('_', '-')}"
    return (
        f"{after.name}: {now}: {steps} steps of a worker are a short run for it, which may "
        f"end below bsp; {flag}, where you give it, stays"
    )


def _shown(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def task_notes(config: Config, train_samples: int) -> list[str]:
    """Returns the lines about a run of a named model on named data."""
    return [note for of in (batch_size_note, short_run_note) if (note := of(config, train_samples))]


def setup_notes(config: Config, recipe: Recipe, train_samples: int) -> list[str]:
    """Returns the same and that about the rate, which live runs show once they have the workers' recipe."""
    return [*task_notes(config, train_samples), *filter(None, [rate_note(recipe)])]
