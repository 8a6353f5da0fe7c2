"""Computes goodput: the share of the workers' capacity that went into updates of the model that is left at the end.

    capacity    of each worker: seconds from when it joined first to the end of the run, though it was lost meanwhile
    useful      of a worker: its seconds of computing, times the share of its samples that is in the model
    goodput     sum of what is useful / capacity

What is lost: waiting and communication; the time until a lost worker is back; work that a lost worker had not handed
over; contributions that were dropped or rejected; and updates that servers undid when they went back to a snapshot.

Servers record each update with its samples and contributors (`Applied`, of shard 0). Of several contributors each
counts an equal part. Where no server records updates, what a worker trained before its last exchange is in the model,
and what it trained after that is not; so it is in the phases of `hybrid` before the first update and after the last.
Under gossip, which has no exchanges of that kind, all is in the model that
workers trained which were not lost. Where somebody speaks for a group of workers, exchanges are within the group, and
only what servers have made updates of is in the model. A second is a second, on a slow worker too.

An exchange is reported with the step that follows it. None follows the last exchange of a run, whose driver may report
it alone, or not at all. Then it was made if all workers that had something to hand over have waited after their last
steps: one that the end of the run cuts off while it computes has not waited, and holds the mean of all up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from paceline.core.trace import ARRIVALS, SPEAKS, Applied, Decided, MemberChange, Record, Span
from paceline.observe.runs.updates_in_model import UpdatesInModel


class Goodput:
    """Counts what was useful, one record at a time, in the order in which they were written.

    slices: the lengths of the shards; () where nobody knows, and they count as alike.
    """

    def __init__(self, slices: Sequence[int] = ()) -> None:
        self.slices = slices
        self._seconds: defaultdict[int, float] = defaultdict(float)
        self._samples: defaultdict[int, int] = defaultdict(int)
        self._handed_over: defaultdict[int, int] = defaultdict(int)  # samples before the last exchange
        self._since: defaultdict[int, int] = defaultdict(int)  # and after it
        self._waited: set[int] = set()  # those that have waited since their last step
        self._lost: defaultdict[int, int] = defaultdict(int)
        self._outside: defaultdict[int, int] = defaultdict(int)  # handed over before the first update or after the last
        self._updates = UpdatesInModel()
        self._last_phase: defaultdict[int, int] = defaultdict(int)  # handed over since the last update
        self._went_back = False
        self._in_groups = False
        self._joined_at: dict[int, float] = {}  # by rank: when it joined first
        self._dropped: defaultdict[int, int] = defaultdict(int)  # samples by shard, of all that made an update

    def add(self, record: Record) -> None:
        match record:
            case Span(rank=rank, activity="computing", seconds=seconds, samples=samples, exchanges=exchanges):
                self._waited.discard(rank)
                if exchanges:
                    self._handed_over[rank] += self._since[rank]
                    (self._last_phase if self._updates else self._outside)[rank] += self._since[rank]
                    self._since[rank] = 0
                self._seconds[rank] += seconds
                self._samples[rank] += samples
                self._since[rank] += samples
            case Span(rank=rank):
                self._waited.add(rank)
            case Applied(shard=shard, weight=weight):
                self._dropped[shard] += record.samples if weight <= 0 else 0
                if shard == 0:
                    self._apply(record)
            case Decided(verdict=verdict) if verdict.startswith(SPEAKS):
                self._in_groups = True
            case MemberChange(party=party, event="replaced") if party.startswith("server "):
                self._went_back = True
            case MemberChange(party=party, event=event, at=at) if event in ARRIVALS and party.startswith("worker "):
                self._joined_at.setdefault(int(party.removeprefix("worker ")), max(0.0, at))
            case MemberChange(party=party, event="lost") if party.startswith("worker "):
                rank = int(party.removeprefix("worker "))
                self._lost[rank] += self._since.pop(rank, 0)

    def _apply(self, update: Applied) -> None:
        """Takes an update of shard 0, or a contribution that it dropped."""
        self._without(update)
        if update.weight <= 0:  # neither in the model nor to be handed over
            return
        # Servers went back: updates from that version on are undone. (Phases of `hybrid` count anew, too.)
        if self._went_back:
            self._updates.undo(update.version)
        self._went_back = False
        self._last_phase.clear()
        self._updates.add(update)

    @property
    def dropped(self) -> int:
        """Returns the samples that servers dropped or rejected.

        Each decides for its shard, so a sample that one of two equal shards dropped counts a half.
        """
        slices = dict(enumerate(self.slices)) or dict.fromkeys(self._dropped, 1)
        whole = sum(slices.values())
        parts = sum(samples * slices.get(shard, 0) for shard, samples in self._dropped.items())
        return round(parts / whole) if whole else 0

    def _without(self, update: Applied) -> None:
        """Takes what an update has used, or dropped, off what is still to be handed over."""
        for rank in update.ranks:
            self._since[rank] = max(0, self._since[rank] - update.samples // len(update.ranks))

    def share(self, workers: int, seconds: float, *, gossip: bool = True) -> float | None:
        """Returns the goodput of a run of so many workers and seconds; None where nothing was trained.

        workers: the seats of the run; they count where no record says who has joined.
        `gossip`: the model may be a mean of the workers' own. If not, nothing is in it before the first exchange.
        """
        capacity = self._capacity(workers, seconds)
        if not self._samples or capacity <= 0:
            return None
        useful = self._useful(gossip)
        total = sum(
            spent * min(1.0, useful[rank] / self._samples[rank])
            for rank, spent in self._seconds.items()
            if self._samples[rank]
        )
        return min(1.0, total / capacity)

    def _capacity(self, workers: int, seconds: float) -> float:
        """Returns the seconds that the workers were there, or should have been. A first incarnation may join late."""
        if not self._joined_at:
            return workers * seconds
        ranks = self._joined_at.keys() | self._samples.keys()
        return sum(max(0.0, seconds - self._joined_at.get(rank, 0.0)) for rank in ranks)

    def samples_in_model(self, *, gossip: bool = True) -> float:
        """Returns the samples that are in the model; 0 where it is the one that the run began with."""
        return sum(self._useful(gossip).values())

    def _useful(self, gossip: bool) -> defaultdict[int, float]:
        """Returns the samples of each rank that are in the model."""
        useful = self._updates.samples.copy()
        if self._in_groups:
            return useful
        if self._updates:
            for known in (self._outside, self._last_phase):
                for rank, samples in known.items():
                    useful[rank] += samples
            return useful
        last = self._in_last_exchange()
        if any(self._handed_over.values()) or last or not gossip:
            for rank in (*self._handed_over, *last):
                useful[rank] = self._handed_over.get(rank, 0) + last.get(rank, 0)
        else:
            useful.update({rank: samples - self._lost[rank] for rank, samples in self._samples.items()})
        return useful

    def _in_last_exchange(self) -> dict[int, int]:
        """Returns the samples of each rank that were handed over after its last step; {} where some were not."""
        pending = {rank: samples for rank, samples in self._since.items() if samples}
        return pending if self._waited.issuperset(pending) else {}
