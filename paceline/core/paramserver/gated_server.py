"""The clock-gated server, shared by every scheme whose rule is about clocks: BSP, ASP, SSP, GSP, ...

A worker pushes what came of its work and waits for weights; on a parameter server a scheme is *when the server
answers*. A few questions tell the schemes apart, and a scheme overrides the ones it answers differently:

    partition()        whose contributions are averaged into one update?     (default: everyone on its own)
    enough(round)      has a round what it takes to become one?              (all its members came)
    refuse(rank)       why does what this worker pushed not count?           (it does)
    corrected(rank, g) what is a gradient worth at today's weights?          (what it was)
    ticked(rank, ...)  may a push let others go than those of its round?     (yes, if the slowest clock moved)
    may_go(rank)       may this worker compute again?                        (yes)
    move(ranks, v, ...) what does an update do to the model?                  (what the payload says)
    answer(rank, ...)  what does a worker get that may go on?                (the weights; one message for all)

What becomes of one push:

    it is                                          what changes                           its worker
    of a worker that has left                      nothing                                gets no answer
    a repeat (its clock is not new)                nothing                                is answered once it may go
    refused by the scheme                          samples count, nothing else            may go if may_go says so
    rejected by the gradient check                 samples count once its round is over   as if it had come
    the only one of its round                      one update                             may go if may_go says so
    one of several of its round                    the round's sum                        waits until the round closes
    the last of its round                          one update; all of the round may go    may go if may_go says so

The factor of a late update is the scheme's `weighting`, of one that derives from `Weighted`. A question that a scheme
does not override is never asked, which is decided when the server is made: a push costs what its scheme needs to know,
and no more.

Rules that look at clocks or at fixed groups alone may be held by every shard on its own: whatever order the pushes come
in, the slowest worker is let go everywhere. A rule that looks at the order of arrival could make two shards hold
workers that wait for one another. Such a scheme says `one_gate`: shard 0 alone holds workers back, the other shards
answer at once, and a worker that was held pulls the weights again when it is let go. The test is: does the worker with
the smallest clock always go? Then every shard may hold the rule, also one that draws; otherwise it needs `one_gate`.

The worker's side is `gated_worker.py`; what waits to become an update is in `round.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar

from paceline.core.effects import Data, Reply, Tell
from paceline.core.message import INCREMENT, STATE, Nature, message
from paceline.core.paramserver.clocks import Clocks
from paceline.core.paramserver.round import MadeOf, Round
from paceline.core.paramserver.staleness import Weighting
from paceline.core.role import Role, RoleContext, found_under
from paceline.core.samples.sample_leases import APPLIED, LATE, REFUSED, SampleRanges
from paceline.core.spans import Spans, updated
from paceline.core.trace import Applied, Decided
from paceline.core.validation import bounds

NAMED_MAX = 8
"""A decision names the workers that are waited for, if they are no more than this."""
GRADIENT, DELTA, WEIGHTS = "gradient", "delta", "weights"
"""What a push may carry: a gradient, the change by local steps, or the weights after them."""


@message("clocked.Pull")
class Pull:
    """Asks for the weights without pushing anything; answered by Weights.

    last: the clock of the sender's last push, 0 before the first. It counts where all servers have gone back; see
    `clocks.among_others`.
    """

    last: bounds.Count = 0


@message("clocked.Push")
class Push:
    """Carries what came of `samples` samples: `g` is their mean gradient, or what else the scheme's `payload` says.

    `clock` counts this worker's pushes from 1. `data`: which samples, where they are leased or drawn from a queue.
    `unused`: the spans of the model that they have not used, over all slices. Answered by Weights.
    """

    carries: ClassVar[Nature] = INCREMENT

    g: bounds.Whole
    clock: bounds.Clock
    samples: bounds.Samples
    data: bounds.Leased = ()
    unused: bounds.Unused = ()


@message("clocked.Weights")
class Weights:
    """Answers a Push or a Pull. `current`: False when other shards have answered earlier, so their parts may be older.

    samples_seen: samples of all workers in the updates up to `version`, those that were dropped included.
    """

    carries: ClassVar[Nature] = STATE

    w: bounds.Whole
    version: bounds.Count
    current: bool = True
    samples_seen: bounds.Count = 0


class ClockedServer(Role):
    """Holds one shard: applies complete rounds, answers the workers that may go on.

    waits_for_round: a contributor gets no answer before its round has become an update.
    """

    waits_for_round = True
    goes_back = True
    transient: ClassVar[tuple[str, ...]] = (
        *("payload", "settled", "contributing", "weighting", "holds_back", "only_gate", "waits_for_round"),
        *("rounds", "homes", "waiting", "own", "unused"),  # `own` is kept by rank
        *("_asks_enough", "_asks_refuse", "_asks_corrected", "_asks_ticked", "_asks_may_go", "_one_for_all"),
    )

    def __init__(self, scheme: Any, place: RoleContext) -> None:
        super().__init__(scheme, place)
        self.payload: str = getattr(scheme, "payload", GRADIENT)
        self.settled, self.contributing = place.settled, place.contributing
        self.weighting = Weighting.parse(getattr(scheme, "weighting", "none"))
        one_gate: bool = getattr(scheme, "one_gate", False)
        self.holds_back = self.me == 0 or not one_gate
        self.only_gate = self.me == 0 and one_gate
        self.clocks = Clocks(self.workers)
        self.version = 0
        self.seen = dict.fromkeys(self.workers, 0)  # version of the weights each worker computes on
        made: Callable[[Iterable[int]], Round] = place.rounds or Round
        self.rounds = {rank: group for members in self.partition() for group in [made(members)] for rank in members}
        self.homes = dict(self.rounds)  # also of those who have left
        self.waiting: dict[int, str | None] = {}  # rank -> the reason it was last told to wait for
        self.own: dict[int, Any] = {}  # x_i by rank, where the payload is weights
        self.shift: dict[int, int | None] = {}  # of a newcomer: its clock here, less what it calls its clock
        self.untold: set[int] = set()  # has not told its clock since all went back, see `clocks.among_others`
        self.done = SampleRanges()  # samples that are in some update, as far as pushes name them
        self.unused: Spans = ()  # what the update that is being made leaves alone
        self._asks_enough, self._asks_refuse = self._answers("enough"), self._answers("refuse")
        self._asks_corrected, self._asks_ticked = self._answers("corrected"), self._answers("ticked")
        self._asks_may_go = self._answers("may_go")
        self._one_for_all = self.payload != WEIGHTS and not self._answers("answer")

    def state_dict(self) -> dict[str, Any]:
        """Returns the tables of this shard. A worker that waits for a round is recorded as before its push.

        Its gradient is not kept; the worker still has it, and pushes it again after a rollback.
        """
        clocks = [[rank, clock - (rank in self.homes[rank].came)] for rank, clock in self.clocks.items()]
        seen, shift = list(self.seen.items()), list(self.shift.items())
        tables = {"version": self.version, "clocks": clocks, "seen": seen, "shift": shift, "done": list(self.done)}
        untold = {"untold": sorted(self.untold)} if self.untold else {}
        return {**tables, **untold, "samples_seen": self.samples_seen}

    def load_state_dict(self, tables: dict[str, Any]) -> None:
        """Goes on where `state_dict` was taken: workers push again what is not in it."""
        self.version = tables["version"]
        for rank, clock in tables["clocks"]:
            self.clocks.tick(rank, clock)
        self.seen.update(dict(tables["seen"]))
        self.shift.update(dict(tables["shift"]))
        went_back = bool(tables.get("together"))
        self.untold = self.clocks.keys() - self.shift.keys() if went_back else set(tables.get("untold", ()))
        self.done = SampleRanges(tables.get("done", ()))
        self.samples_seen = tables.get("samples_seen", self.samples_seen)

    def state(self) -> dict[str, Any]:
        return {**super().state(), **{f"own.{rank}": x for rank, x in self.own.items()}}

    def load_state(self, state: Mapping[str, Any]) -> None:
        super().load_state(state)
        self.own = {int(rank): x for rank, x in found_under("own", state).items()}

    def _answers(self, question: str) -> bool:
        return getattr(type(self), question) is not getattr(ClockedServer, question)

    # ---- what a scheme may answer differently ------------------------------------------------------------
    def partition(self) -> Iterable[tuple[int, ...]]:
        """Returns the groups of ranks whose contributions are averaged into one update."""
        return ((rank,) for rank in self.workers)

    def enough(self, group: Round) -> bool:
        return group.complete

    def refuse(self, rank: int) -> str | None:
        """Returns why what `rank` has just pushed is dropped, or None. It is asked once for each push."""
        return None

    def corrected(self, rank: int, g: Any) -> Any:
        """Returns the gradient `g` of `rank`, corrected for the updates since its weights; the same
        vector by default.
        """
        return g

    def ticked(self, now: float, rank: int, low_moved: bool) -> bool:
        """`rank` has finished an exchange. Returns True if that may let go others than those of its round."""
        return low_moved

    def may_go(self, rank: int) -> bool:
        """Returns True if `rank` may compute again; otherwise its answer waits."""
        return True

    def why_not(self, rank: int) -> str:
        """Returns the reason behind `may_go`; called only when a trace is written."""
        return ""

    def holders(self, rank: int) -> Collection[int]:
        """Returns the workers that one waits for that may not go; called only when a trace is written."""
        return ()

    def answer(self, rank: int, current: bool) -> Weights:
        """Returns the message for a worker that may go on. `current`: see Weights."""
        w, version, samples = self.own.get(rank, self.w), self.version, self.samples_seen
        return Weights(w=w, version=version, current=current, samples_seen=samples)

    # ---- upon receiving ----------------------------------------------------------------------------------
    def on(self, now: float, src: int, message: Any) -> Iterable[Tell | Reply]:
        """Takes a Push or a Pull, and returns the replies that it lets go; see the table of pushes above."""
        if not isinstance(message, (Push, Pull)):
            return super().on(now, src, message)
        if src not in self.clocks:
            return ()  # it has left; what was still on its way changes nothing
        self.waiting[src] = None
        if isinstance(message, Push):
            clock = self._clock(src, message.clock) if self.shift else message.clock
            if clock > self.clocks[src]:
                return self._take(now, src, message, clock)
        elif src in self.untold:
            self.untold.discard(src)
            if message.last > self.clocks[src] and self.clocks.tick(src, message.last):  # it was the slowest here
                return self._release(now, self.waiting, together=True)
        return self._release(now, (src,))  # a repeated push is answered and changes nothing

    def _take(self, now: float, src: int, push: Push, clock: int) -> Iterable[Reply]:
        """Takes a push with a new clock: ticks, contributes, and releases whom that lets go."""
        everybody = self.clocks.tick(src, clock)
        if self.untold:
            self.untold.discard(src)
        if self._asks_ticked:
            everybody = self.ticked(now, src, everybody)
        freed = self._contribute(now, src, push)
        # A push that frees nobody but its own worker, the most frequent case, looks at no other waiting worker.
        if everybody or len(freed) > 1:
            return self._release(now, self.waiting if everybody else freed, together=True)
        return self._release(now, freed)

    def on_worker_left(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        """Takes `rank` out of its round and of the clocks, either of which may let others go."""
        if rank not in self.clocks:
            return
        if self.gate is not None:
            self.gate.gone(rank)
        self.clocks.drop(rank)
        self.untold.discard(rank)
        self.waiting.pop(rank, None)
        self.shift.pop(rank, None)  # so that the next newcomer changes `mark_of`, and this server is copied again
        group = self.rounds.pop(rank)
        group.members.discard(rank)
        if group.came and self.enough(group):
            self._close(now, group)
        yield from self._release(now, self.waiting, together=True)

    def on_worker_joined(self, now: float, rank: int) -> Iterator[Tell | Reply]:
        """Takes in a newcomer, in its old group if it had one, from the group's open round on."""
        if rank in self.clocks:
            return
        if self.gate is not None:
            self.gate.came(rank)
        self.clocks.add(rank)
        self.own.pop(rank, None)  # not when it left: a checkpoint of the end has its weights, too
        self.shift[rank] = None
        self.seen[rank] = self.version
        self.rounds[rank] = self.homes.setdefault(rank, Round(()))
        self.rounds[rank].members.add(rank)
        if rank in self.rounds[rank].came:  # its former incarnation has pushed to the open round
            self.clocks.tick(rank, self.clocks[rank] + 1)
        yield from ()

    def finish(self, now: float) -> Iterator[Tell | Reply]:
        """Makes updates of the rounds that are still open, at the end of a phase."""
        for group in self._rounds():
            self._close(now, group)
        yield from ()

    def _clock(self, rank: int, clock: int) -> int:
        """Returns the clock of a push on this shard's count.

        A newcomer goes on from the clock it was given here, or from its own if that is further; all shards know that
        one.
        """
        if rank not in self.shift:
            return clock
        shift = self.shift[rank]
        if shift is None:
            shift = self.shift[rank] = max(0, self.clocks[rank] + 1 - clock)
        return clock + shift

    def _contribute(self, now: float, src: int, push: Push) -> Collection[int]:
        """Adds a push to its round. Returns who waits for no round now: all of the round if this made it an update."""
        if self._asks_refuse and (late := self.refuse(src)) is not None:
            self._drop(now, src, push, late)
            return (src,)
        group = self.rounds[src]
        # A round of one needs no sum: the gradient goes straight into the update, without a copy.
        at_once = len(group.members) == 1 and not group.count and not self._asks_enough
        onto = self.w if at_once else group.sum
        if self.gate is not None and self._rejects(now, src, push.g, onto):
            return self._shut_out(now, src, push)
        g = self.corrected(src, push.g) if self._asks_corrected else push.g
        if at_once:
            self._apply(now, (src,), g, push.samples, ((src, push.data),) if push.data else (), push.unused)
            return (src,)
        group.saw_unused(push.unused)
        group.add(src, g, push.samples)
        if push.data:
            group.data.append((src, push.data))
        if not (self.enough(group) if self._asks_enough else group.complete):
            return (src,)
        return self._close(now, group)

    def _rejects(self, now: float, src: int, g: Any, onto: Any = None) -> bool:
        """Returns True if the gradient check rejects `g`, which is about to be added to `onto`, if to anything."""
        assert self.gate is not None
        waiting = self.rounds[src].came if self.waits_for_round else ()
        return self.gate.push(now, src, g, onto, waiting) is not None

    def _drop(self, now: float, src: int, push: Push, late: str) -> None:
        """Drops what the scheme refuses; it is checked all the same, since the numbers show who is to be expelled."""
        self.own.pop(src, None)
        if self.gate is not None and self._rejects(now, src, push.g):
            self._count_rejected(now, src, push.samples, push.data)
            return
        self.samples_seen += push.samples
        self._explain_drop(now, src, push, late)
        self._settle(LATE, ((src, push.data),))

    def _shut_out(self, now: float, src: int, push: Push) -> Collection[int]:
        """The gradient check has rejected what `src` pushed: its round goes on without, and counts it in the end."""
        group = self.rounds[src]
        samples = group.claimed(push.samples)
        self.own.pop(src, None)
        if self._asks_enough:  # the round closes by a rule of its own: this worker may push to it again
            self._count_rejected(now, src, samples, push.data)
            return (src,)
        group.reject(src, samples, push.data)
        return self._close(now, group) if group.complete else (src,)

    def _count_rejected(self, now: float, rank: int, samples: int, data: Data) -> None:
        self.samples_seen += samples
        if self.note:
            self._note_update(now, (rank,), self.version - self.seen[rank], 0.0, samples)
        self._settle(REFUSED, ((rank, data),))

    def _close(self, now: float, group: Round) -> Collection[int]:
        """Makes the round an update, unless all of it was rejected. Returns who took part in it."""
        came = group.came
        # Not counted before: whoever goes on from a copy gets all of an open round once more.
        for rank, (samples, data) in group.rejected.items():
            self._count_rejected(now, rank, samples, data)
        if group.count:
            counted = came - group.rejected.keys() if group.rejected else came
            self._apply(now, counted, group.mean(), group.counted_samples(), group.data, group.unused)
        group.reset()
        return came

    def _apply(
        self, now: float, ranks: Collection[int], v: Any, samples: int, data: MadeOf = (), unused: Spans = ()
    ) -> None:
        """Makes one update of `v`, the mean of `ranks`' contributions; a weight of 0 drops it."""
        self.samples_seen += samples
        weight = 1.0
        # Staleness is computed only where somebody wants it: it looks at every contributor.
        if self.note or self.weighting.rule != "none":
            staleness = self.version - min([self.seen[rank] for rank in ranks])
            weight = self.weighting(staleness + 1)
        if weight > 0:
            self.unused = unused
            if self.contributing is not None:
                self.contributing(ranks)
            self.move(ranks, v, samples, weight)
            self.version += 1
        if self.note:
            self._explain_update(now, ranks, staleness, weight, samples)
        if data:
            self._settle(APPLIED if weight > 0 else LATE, data)

    def _settle(self, fate: str, data: MadeOf) -> None:
        """Records what became of the leased samples in `data`, and tells the lease queue."""
        for rank, pieces in data:
            if fate == APPLIED:
                for piece in pieces:
                    self.done.add(piece)
            if pieces and self.settled is not None:
                self.settled(rank, fate, pieces)

    def _rounds(self) -> Collection[Round]:
        return {id(group): group for group in self.homes.values()}.values()

    def samples_waiting(self) -> int:
        return sum(group.samples_waiting for group in self._rounds())

    def pending(self, rank: int) -> Data:
        return tuple(piece for group in self._rounds() for piece in group.pending(rank))

    def move(self, ranks: Collection[int], v: Any, samples: int, weight: float) -> None:
        """Moves the model by `v`, as the payload says: a gradient, a delta, or a worker's weights
        (elastic averaging).
        """
        if self.payload == GRADIENT:
            self.w = updated(self.update, self.w, v if weight == 1 else v * weight, samples, self.unused)
        elif self.payload == DELTA:
            self.w = self.w + v * (weight / self.scheme.factor)
        else:
            (rank,) = ranks
            e = (v - self.w) * self.scheme.alpha
            self.own[rank] = v - e
            self.w = self.w + e * weight

    def _release(self, now: float, ranks: Collection[int], together: bool = False) -> list[Reply]:
        """Returns the replies to those of `ranks` that wait and may go.

        `together`: other shards may not know yet what lets them go, so an answer of shard 0 alone is not current.
        """
        replies: list[Reply] = []
        waiting, answer = self.waiting, None
        for rank in tuple(ranks):
            if rank not in waiting:
                continue
            # Two reasons to wait: its round is still open, or the scheme's rule. A shard that holds nobody back asks
            # neither.
            if self.holds_back and (
                (self.waits_for_round and rank in self.rounds[rank].came)
                or (self._asks_may_go and not self.may_go(rank))
            ):
                if self.note:
                    self._explain_wait(now, rank)
                continue
            del waiting[rank]
            self.seen[rank] = self.version
            # One message serves all that are let go together; only schemes with answers of their own need one for each.
            if answer is None or not self._one_for_all:
                answer = self.answer(rank, not (together and self.only_gate))
            replies.append(Reply(rank, answer))
        return replies

    # ---- reasons -----------------------------------------------------------------------------------------
    def _explain_update(self, now: float, ranks: Collection[int], staleness: int, weight: float, samples: int) -> None:
        contributors = tuple(sorted(ranks))
        self._note_update(now, contributors, staleness, weight, samples)
        if weight == 0:
            self._decide(now, contributors[0], "dropped", f"{staleness} versions late")

    def _explain_drop(self, now: float, rank: int, push: Push, reason: str) -> None:
        if self.note:
            self._note_update(now, (rank,), self.version - self.seen[rank], 0.0, push.samples)
            self._decide(now, rank, "dropped", reason)

    def _note_update(self, now: float, ranks: tuple[int, ...], staleness: int, weight: float, samples: int) -> None:
        assert self.note is not None
        shard, version = self.me, self.version
        record = Applied(
            at=now, shard=shard, ranks=ranks, version=version, staleness=staleness, weight=weight, samples=samples
        )
        self.note(record)

    def _explain_wait(self, now: float, rank: int) -> None:
        """Writes once a wait for what reason a worker gets no answer, and whom it waits for."""
        if self.waiting[rank] is not None:
            return
        group = self.rounds[rank]
        in_open_round = self.waits_for_round and rank in group.came
        reason = self.why_in_round(group) if in_open_round else self.why_not(rank)
        missing = len(group.members) - len(group.came)  # compared first: a difference of large sets is costly
        whom: Collection[int] = () if in_open_round else self.holders(rank)
        if in_open_round and missing <= NAMED_MAX:
            whom = group.members - group.came
        self.waiting[rank] = reason
        self._decide(now, rank, "wait", reason, tuple(sorted(whom)) if len(whom) <= NAMED_MAX else ())

    def why_in_round(self, group: Round) -> str:
        """Returns what a contributor waits for; called only when a trace is written."""
        of = " of its group" if len(group.members) < len(self.rounds) else ""
        return f"waits for {some(group.members.difference(group.came))}{of}"

    def _decide(self, now: float, rank: int, verdict: str, reason: str, whom: tuple[int, ...] = ()) -> None:
        assert self.note is not None
        self.note(Decided(at=now, party=f"server {self.me}", rank=rank, verdict=verdict, reason=reason, whom=whom))


def settles(scheme: Any, servers: int) -> bool:
    """Returns True if a server knows what became of each contribution, and so of leased samples."""
    box = scheme.server(servers)
    return box is not None and issubclass(box, ClockedServer) and getattr(scheme, "payload", GRADIENT) != WEIGHTS


def some(ranks: Iterable[int]) -> str:
    """Names ranks in short: `worker 1`, `workers 1, 2, 3` or `workers 1, 2, 3 and 7 more`."""
    ordered = sorted(ranks)
    head = ", ".join(map(str, ordered[:3]))
    rest = f" and {len(ordered) - 3} more" if len(ordered) > 3 else ""
    return f"worker{'s' if len(ordered) > 1 else ''} {head}{rest}"
