"""Who takes part in a run, and what the workers have trained, as far as they reported it."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from paceline.core.coordination import control_messages as control
from paceline.core.coordination import party
from paceline.core.coordination.party import Party
from paceline.core.fault_tolerance.membership import Membership


class RunRoster:
    """Lists who takes part in a run, and which workers train, join, are lost or banned.

    A worker trains, has left, or is lost. One that is `joining`, or not started yet, counts as lost until it trains.
    One that is `drained` has left, and its process has not ended; it counts as lost when it may exit.
    """

    def __init__(self, workers: int, servers: int, evaluator: bool, not_started: Collection[int]) -> None:
        """`not_started`: the ranks of workers that may join later; in a live run they are the highest."""
        self.workers = [party.worker(rank) for rank in range(workers)]
        self.servers = [party.server(shard) for shard in range(servers)]
        self.evaluator = [party.EVALUATOR] if evaluator else []
        self.not_started = {self.workers[rank] for rank in not_started}  # they have never been there
        self.beginning = [who for who in self.workers if who not in self.not_started]
        self.training = set(self.beginning)
        self.joining: dict[Party, control.Hello] = {}  # newcomers that do not train yet
        self.lost = set(self.not_started)
        self.drained: set[Party] = set()
        self.banned: set[Party] = set()  # those of them that nobody starts again, or lets in
        self.hellos: dict[Party, control.Hello] = {}  # what those said that have been there

    def everybody(self) -> list[Party]:
        return [*self.servers, *self.workers, *self.evaluator]

    def ranks(self) -> set[int]:
        """Returns the ranks of the workers that train."""
        return {who.index for who in self.training}

    def present(self) -> list[Party]:
        """Returns those who hear of membership changes."""
        return [*self.servers, *self.evaluator, *sorted(self.training), *self.joining]

    def count(self, what: str) -> str:
        """Says how many workers train, for the end of a line; `what` is what they do."""
        return f"{len(self.training)} of {len(self.workers)} {what}"

    def roster(self, server_view: int, late: Membership[Party] | None = None) -> control.Roster:
        """Returns the roster to send to a party.

        late: the membership, for a party that joins during training; the roster then has the workers' incarnations.
        The lost are marked, so that nobody calls them: if a whole host is down, each call costs a timeout.
        """
        away = set(self.workers).difference(late.here()) if late else self.not_started | self.lost | self.drained
        hellos = self.hellos | self.joining
        return control.Roster(
            addresses={str(who): hello.address for who, hello in hellos.items()},
            hosts={str(who): hello.host for who, hello in hellos.items()},
            incarnations=tuple(late.incarnation(who) for who in self.workers) if late else (),
            gone=tuple(sorted(who.index for who in away)),
            lost=tuple(sorted(who.index for who in away & self.lost)),
            joining=tuple(sorted(who.index for who in away & self.joining.keys())),
            server_view=server_view,
        )


class ProgressTotals:
    """Sums the progress of each worker over all its incarnations, and that of all workers.

    samples, exchanges  of all workers together. They are kept, as each report asks for them: to add them up anew would
                        take the coordinator longer for each report, the more workers there are
    behind              samples in the weights that the run goes on from. Workers were kept at moments of their own, so
                        theirs add up to others
    """

    def __init__(self, behind: int = 0) -> None:
        self._behind = behind
        self.samples, self.exchanges = behind, 0
        self._progress: dict[int, control.Progress] = {}
        self._former: dict[int, control.Progress] = {}  # without the present incarnation, where it is not the first

    def of(self, rank: int) -> int:
        """Returns the samples that worker `rank` has trained in this run, without those before a resume."""
        progress = self._progress.get(rank, control.NOTHING)
        return progress.samples - progress.samples_before

    def alone(self, rank: int) -> tuple[int, int]:
        """Returns the steps and samples of worker `rank` that would be lost with it."""
        progress = self._progress.get(rank, control.NOTHING)
        return progress.steps_alone, progress.samples_alone

    def share_of(self, rank: int) -> int:
        """Returns the samples that worker `rank` has trained of its share, as far as it reported them."""
        return self._progress.get(rank, control.NOTHING).share

    def told(self, rank: int, progress: control.Progress) -> control.Progress:
        """Takes the progress of a worker's present incarnation; returns that of all its incarnations."""
        if rank in self._former:
            progress = self._former[rank] + progress
        before = self._progress.get(rank, control.NOTHING)
        self.samples += self._counted(progress) - self._counted(before)
        self.exchanges += progress.exchanges - before.exchanges
        self._progress[rank] = progress
        return progress

    def _counted(self, progress: control.Progress) -> int:
        return progress.samples - (progress.samples_before if self._behind else 0)

    def lost(self, rank: int) -> control.Progress | None:
        """Takes off what worker `rank` alone had trained, which is lost with it; returns its progress without that, or
        None where that is nothing."""
        progress = self._progress.get(rank, control.NOTHING)
        if not progress.samples_alone:
            return None
        samples, steps = progress.samples - progress.samples_alone, progress.steps - progress.steps_alone
        self.samples -= progress.samples_alone
        left = dataclasses.replace(progress, samples=samples, steps=steps, samples_alone=0, steps_alone=0)
        self._progress[rank] = left
        return left

    def new_incarnation(self, rank: int) -> control.Progress:
        """Begins a new incarnation of worker `rank`; returns what the earlier ones have done."""
        former = self._former[rank] = self._progress.get(rank, control.NOTHING)
        return former
