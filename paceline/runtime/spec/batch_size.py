"""Checks and explains a batch that is larger than the data, or than one worker's part of it."""

from __future__ import annotations

from paceline.config import Config
from paceline.core.errors import ConfigError
from paceline.engine.data.partition_plan import parse_partition
from paceline.observe.formatting.number_format import counted

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
