"""Who takes part in a run, and what the workers have done, as far as they have told."""

from __future__ import annotations

from collections.abc import Collection

from paceline.core.fault_tolerance.membership import Membership as Members
from paceline.live import party
from paceline.live.party import Party
from paceline.live.protocol import control_messages as control


class RunRoster:
    """Of `workers` workers and `servers` servers, with an evaluator or without."""

    def __init__(self, workers: int, servers: int, evaluator: bool, not_started: Collection[int]) -> None:
        """`not_started`: workers, those of the highest ranks, that may come later."""
        self.workers = [party.worker(rank) for rank in range(workers)]
        self.servers = [party.server(shard) for shard in range(servers)]
        self.evaluator = [party.EVALUATOR] if evaluator else []
        self.not_started = {self.workers[rank] for rank in not_started}  # they have never been there
        self.beginning = self.workers[: workers - len(not_started)]
        self.training = set(self.beginning)
        self.joining: dict[Party, control.Hello] = {}  # newcomers that do not train yet
        self.lost = set(self.not_started)
        self.banned: set[Party] = set()  # those of them that nobody starts again, or lets in
        self.hellos: dict[Party, control.Hello] = {}  # what those said that have been there

    def everybody(self) -> list[Party]:
        return [*self.servers, *self.workers, *self.evaluator]

    def present(self) -> list[Party]:
        """Returns those who hear of membership changes."""
        return [*self.servers, *self.evaluator, *sorted(self.training), *self.joining]

    def count(self, what: str) -> str:
        """Says how many workers train, for the end of a line; `what` is what they do."""
        return f"{len(self.training)} of {len(self.workers)} {what}"

    def roster(self, server_view: int, late: Members[Party] | None = None) -> control.Roster:
        """`late`: who is here by now, and in which incarnation, for one that comes late; the announced are here.

        Nobody has to call the lost: where a whole host is, each call would take its time.
        """
        away = set(self.workers).difference(late.here()) if late else self.not_started | self.lost
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
    """By rank, all incarnations of a worker together."""

    def __init__(self) -> None:
        self._progress: dict[int, control.Progress] = {}
        self._former: dict[int, control.Progress] = {}  # without the present incarnation, where it is not the first

    @property
    def samples(self) -> int:
        """Trained by all workers together."""
        return sum(progress.samples for progress in self._progress.values())

    def of(self, rank: int) -> int:
        """Samples of worker `rank` in this run."""
        progress = self._progress.get(rank, control.NOTHING)
        return progress.samples - progress.samples_before

    def told(self, rank: int, progress: control.Progress) -> control.Progress:
        """`progress` is that of its present incarnation; returns that of all."""
        if rank in self._former:
            progress = self._former[rank] + progress
        self._progress[rank] = progress
        return progress

    def new_incarnation(self, rank: int) -> control.Progress:
        """What it has done before the incarnation that begins now."""
        former = self._former[rank] = self._progress.get(rank, control.NOTHING)
        return former
