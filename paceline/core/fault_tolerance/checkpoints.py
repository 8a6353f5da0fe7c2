"""Decides which tables of the servers a checkpoint keeps, and what servers and workers begin with when it is resumed.

    kept       of all slices of one capture            the tables of the slice that reports leased samples
    kept       of a worker that they have forgotten    the clock that it says itself (`with_forgotten`)
    resumed    of a worker that nobody remembers       the clock of the slowest
    resumed    what differs in a new incarnation       nothing: all workers are there from the beginning

Slices of one capture may be made of different contributions, and in asynchronous schemes be of different versions. The
tables of one go for all of them, so the slices agree on every clock when the run goes on. The leased samples that count
as done are those in that slice.

Live runs keep and resume by it (`runtime/checkpointing/`), and so do simulated ones whose leader is lost
(`runtime/simulated/leader_loss.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paceline.core.effects import Data

Tables = dict[str, Any]
"""What `Role.state_dict` of a server returns: lists and numbers that JSON can hold."""


def kept_tables(slices: Sequence[Tables], reporting: int = 0) -> Tables:
    """Returns the tables to keep of all `slices`; `reporting`: the number of the one that reports leased samples."""
    return dict(slices[reporting])


def with_forgotten(tables: Tables, clocks: Mapping[int, int]) -> Tables:
    """Returns the tables with the workers that servers have forgotten, since a later run begins with all.

    clocks: what each worker calls its clock, by rank.
    """
    if "clocks" not in tables:  # not every kind of server has any
        return tables
    known = {rank for rank, _ in tables["clocks"]}
    return {**tables, "clocks": [*tables["clocks"], *([rank, at] for rank, at in clocks.items() if rank not in known)]}


def resumed_tables(kept: Tables, ranks: Iterable[int], done: Data, samples: int) -> Tables:
    """Returns the tables that every slice begins with when a checkpoint is resumed.

    ranks    of all workers
    done     leased samples that are in the weights
    samples  that all workers have trained, where the tables do not say
    """
    clocks, seen, ranks = dict(kept["clocks"]), dict(kept["seen"]), list(ranks)
    low = min(clocks.values(), default=0)
    return {
        **kept,
        "clocks": [[rank, clocks.get(rank, low)] for rank in ranks],
        "seen": [[rank, seen.get(rank, kept["version"])] for rank in ranks],
        "shift": [],
        "done": done,
        "samples_seen": kept.get("samples_seen", samples),
    }
