"""A server: one shard of the model, its optimizer, and the roles of the scheme that belong there.

The shard is cut into slices. Each has a role, an update rule and means of its own, so that one is updated and
answered while the next is still coming in; for the scheme each is a shard.

    Plan arrives       `Shard` is made: rules, gradient checks, a carrier of means for each slice, no roles yet
    first Mean         worker 0's weights arrive; each slice gets its role (`_host.initial`)
    begin              training starts; with --ack replica, replies wait for the next server's copy from now on
    Restore            another server was lost: all slices become what the snapshot or a copy says (`restore`)
    end                nobody trains; the captures that are wanted are taken now

Roles run on the net thread. The main thread waits in `session.serve`, which calls `begin`, `restore`, `resume` and
`end`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from typing import Any, assert_never

from torch import Tensor

from paceline.core.collective.mean_server import Averaged, MeanServer
from paceline.core.coordination import control_messages as control
from paceline.core.coordination import party
from paceline.core.coordination.party import Party
from paceline.core.coordination.sample_leases import FIRST
from paceline.core.effects import Data
from paceline.core.errors import PeerLost
from paceline.core.fault_tolerance.replication import SliceState, mark_of
from paceline.core.fault_tolerance.snapshots import FORGET
from paceline.core.paramserver.gated_server import ClockedServer
from paceline.core.paramserver.gradient_check import OFF, SliceGradientCheck
from paceline.core.paramserver.robust_mean import NONE as NO_RULE
from paceline.core.parties.orders import RolesHearJoined, RolesHearLeft
from paceline.core.parties.server_restore import (
    BecomeState,
    BecomeStep,
    EnterServerView,
    FetchState,
    ForgetCaptures,
    ForgetCopies,
    ForgetResolved,
    MeetEverybody,
    ReplaceRoles,
    RestoreAction,
    ServerRestore,
    ToCoordinator,
)
from paceline.core.role import RoleContext
from paceline.core.samples.sample_leases import SampleRanges
from paceline.core.sharding import tensors_by_slice
from paceline.core.trace import Applied, Decided, Gated, Record
from paceline.engine.specs import OptimizerRecipe
from paceline.engine.vectors.coordinate_sort import Sorting
from paceline.engine.vectors.flat import FlatMemory
from paceline.engine.vectors.norm_probe import Probe
from paceline.live.control.handlers import PartyCallbacks
from paceline.live.control.session import Session
from paceline.live.node.hosted_slice import ServedSlice
from paceline.live.node.published_state import PRESENCE
from paceline.live.state.replication import COMPLETE, COPY, SliceReplication
from paceline.live.state.slice_state import CHECKPOINT, SNAPSHOT, fetch
from paceline.runtime.checkpointing.checkpoint_validation import OPTIMIZER
from paceline.runtime.checkpointing.resume import ResumePoint, parts_of
from paceline.runtime.checkpointing.slice_capture import (
    NOTHING,
    Captures,
    load_role,
    load_rule,
    revive,
    state_of,
    together,
)
from paceline.runtime.checkpointing.slice_numbers import of_slice
from paceline.runtime.checkpointing.state_on_request import StatesOnRequest, say_taken, take_loaded
from paceline.runtime.kvstore.table import open_table
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.spec.process_spec import ProcessSpec
from paceline.runtime.spec.who_updates import servers_update
from paceline.runtime.worker.steps.lr_watch import heard, median_of

INITIAL = "initial weights"
"""The tag of the first mean, in which only worker 0 has weight."""


class _Means(MeanServer):
    """Carries every `Mean` on a slice; the first one gives the initial weights."""

    def __init__(self, scheme: Any, place: RoleContext, initial: Callable[[Any], None]) -> None:
        super().__init__(scheme, place)
        self._initial = initial

    def on_mean(self, tag: Hashable, result: Averaged) -> None:
        """Takes the result of the first mean: the weights that training begins with."""
        if tag == INITIAL:
            self._initial(result.v)


def serve(spec: ProcessSpec, session: Session, start: ResumePoint | None = None) -> None:
    """Takes part as a server until the coordinator says Exit. Raises PeerLost when it vanishes."""
    session.connect(())
    plan = session.expect(control.Plan)
    recipe = Recipe.from_json(plan.optimizer)
    store = recipe.store
    if start is not None and spec.config.stop.until_stopped:  # a loop of one's own says what it does
        start = start.of_loop(recipe)
    if store:
        session.node.host(open_table(session.node, store, plan.workers))
    else:
        shard = Shard(spec, session, plan, start)
        session.node.host(shard.everything)
        for rank in sorted(session.departed):  # they may come later
            session.node.gone(rank)
    session.took_up()
    if (
        (recipe.loaded or (recipe.begun and servers_update(recipe.make_scheme(), plan.servers)))
        and not store
        and not spec.incarnation
    ):
        shard.take_loaded()
    session.serve(None if store else shard)


class Shard:
    """Holds the slices of one server. Their roles come with the initial weights, or with the state of a server before
    it."""

    def __init__(self, spec: ProcessSpec, session: Session, plan: control.Plan, start: ResumePoint | None) -> None:
        self._server, self._is_later_incarnation = spec.who.index, spec.incarnation > 0
        self._session, self._node, self._plan, self._start = session, session.node, plan, start
        self._restoring = session.observer.observe("restore", ServerRestore(later=self._is_later_incarnation))
        self._fetched: list[SliceState] | None = None  # by slice, between its arrival and `_become_state`
        self._samples_before = start.samples if start is not None else 0
        self._recipe = recipe = Recipe.from_json(plan.optimizer)
        self._scheme = recipe.make_scheme()
        self._box = self._scheme.server(len(plan.layout.holders))
        session.node.message_checks.report_to(expel=self._expel, on_strike=self._refused)
        session.node.channel.use(recipe.codecs.stage(FlatMemory(), self._scheme, of_server=True))
        self._parts, self._slices = plan.layout.slices, plan.layout.of(self._server)
        self._tensors = tensors_by_slice(plan.layout, plan.tensors)
        self._rules = [self._make_rule(number) for number in self._slices]
        self._kept: dict[int, tuple[Mapping[str, Any], dict[str, Tensor]]] = {}  # for roles, by slice
        self._resume_rules(start)
        # Before `_host`: a slice's context takes its gradient check from here.
        self._gates = self._make_gates() if recipe.gate.mode != OFF else {}
        self.hosted = [self._host(at, number) for at, number in enumerate(self._slices)]
        captures = {
            purpose: Captures(session.node, self.hosted, self._rules, purpose) for purpose in (CHECKPOINT, SNAPSHOT)
        }
        self._captures = captures
        if self._box is not None:
            StatesOnRequest(session.node, self.hosted, self._rules, plan.workers)
        self._beginning = recipe.of_rule(recipe.optimizer)
        self._followed: dict[int, OptimizerRecipe] = {}  # by rank, where its numbers have changed
        self._beside: list[ServedSlice] = []  # after its slices
        self._copies = self._make_copies() if plan.copied else None
        session.attach(self._callbacks())
        if copies := self._copies:
            node = session.node
            node.after_replicated = lambda act: node.between_messages(lambda: copies.after_replicated(act))
            self._meet_neighbours()

    def _callbacks(self) -> PartyCallbacks:
        """Returns what the session calls when the coordinator or another party sends something that concerns the
        shard."""
        copies, between_messages = self._copies, self._node.between_messages
        always = PartyCallbacks(
            on_capture=lambda order: self._captures[order.purpose].want(order.version, order.number),
            on_rate=self._set_rate,
            pending_of=self._pending_of,
        )
        if copies is None:
            return always
        return dataclasses.replace(
            always,
            on_party_lost=lambda who: between_messages(lambda: self._is_lost(who)),
        )

    def _resume_rules(self, start: ResumePoint | None) -> None:
        """Loads the optimizer's state of a checkpoint into the rules; without it, only the count of samples goes on."""
        if start is not None and start.optimizer_fits:
            vectors = start.tensors(OPTIMIZER)
            for number, rule in zip(self._slices, self._rules, strict=True):
                part = self._parts[number]
                numbers, own = of_slice(start.facts["numbers"], part, self._plan.tensors), parts_of(vectors, part)
                load_rule(rule, numbers, own)
                if start.same:
                    self._kept[number] = start.facts, own
        elif start is not None:
            for rule in self._rules:
                rule.samples_seen = start.samples

    def take_loaded(self) -> None:
        """Takes the optimizer's state that worker 0 has loaded, which waits for that. Raises PeerLost or TimedOut."""
        self._session.reach(party.worker(0))
        found = take_loaded(self._node, self._slices)
        for number, rule, (facts, vectors) in zip(self._slices, self._rules, found, strict=True):
            load_rule(rule, facts["numbers"], vectors)
            self._kept[number] = facts, vectors
            self._samples_before = facts["samples"]
        say_taken(self._node)

    def _make_rule(self, number: int) -> Any:
        """Returns a new update rule for slice `number` of the model."""
        rule = self._recipe.make_rule(self._tensors[number])
        rule.start = self._parts[number].start
        return rule

    def _length(self, number: int) -> int:
        """Returns the number of parameters in slice `number`."""
        return int(self._parts[number].stop - self._parts[number].start)

    def _make_gates(self) -> dict[int, SliceGradientCheck | None]:
        """Returns the gradient check of each slice, or None for slices without one, by number."""

        def made(number: int) -> SliceGradientCheck | None:
            """Returns the gradient check of one slice, or None where nothing is checked."""
            norm, note = Probe(self._length(number)), self._session.reports.note
            return self._recipe.gate.gate(norm, self._plan.workers, self._server, note, self._expel)

        return {number: made(number) for number in self._slices}

    def _expel(self, rank: int, reason: str) -> None:
        """Asks the coordinator to expel a worker; a server cannot do that alone."""
        with contextlib.suppress(PeerLost):  # without a coordinator the run ends in any case
            self._session.tell(control.Unfit(rank=rank, reason=reason))

    def _refused(self, src: Party, why: str, strike: int) -> None:
        """Writes into the trace that a message of `src` was beyond its bounds."""
        if src.kind == "worker":
            now, shard, note = self._node.now(), self._server, self._session.reports.note
            note(Gated(at=now, shard=shard, rank=src.index, number=strike, refused=True, reason=why))

    def _host(self, at: int, number: int) -> ServedSlice:
        """Returns slice `number`, at place `at` of this server, without a role until the initial weights arrive."""
        start = self._start

        def initial(w: Any) -> None:
            """Makes the role of a slice, once its weights are known."""
            mine.role = self._box(self._scheme, self._place(at, w)) if self._box else None
            if mine.role is not None:
                clocked = isinstance(mine.role, ClockedServer)
                counts = mine.role.goes_back if clocked else "done" in mine.role.state_dict()
                if start is not None and start.tables and counts:
                    mine.role.load_state_dict(start.tables)
                facts, vectors = self._kept.pop(number, ({}, {}))
                load_role(mine.role, facts, vectors)
                if isinstance(mine.role, ClockedServer) and "done" in facts:  # of a state that worker 0 has loaded
                    mine.role.done = SampleRanges(facts["done"])
            # Workers that left before the role existed: it must not wait for them in its first round.
            for rank in sorted(self._session.departed if mine.role else ()):
                assert mine.role is not None
                self._node.release(mine.role, mine.role.on_worker_left(self._node.now(), rank))

        mine = ServedSlice(self._length(number), mean_server=_Means(self._scheme, self._place(at, None), initial))
        return mine

    def _place(self, at: int, w: Any) -> RoleContext:
        """Returns the context of the role in place `at`, with weights `w`."""
        number, session = self._slices[at], self._session
        return RoleContext(
            me=number,
            workers=tuple(range(self._plan.workers)),
            w=w,
            update=self._rules[at],
            seed=self._recipe.seed,
            seconds_per_step=self._plan.seconds_per_step,
            # What happens to a shard happens to all its slices; one of them is enough to tell of it.
            note=(lambda record: session.reports.note(_of_server(record, self._server))) if at == 0 else None,
            gate=self._gates.get(number),
            rounds=self._recipe.robust.rounds(Sorting()),
            settled=session.reports.settle if self._reports_samples and at == 0 else None,
            samples_seen=self._samples_before,
            refuses=lambda rank, why: self._node.message_checks.strike(party.worker(rank), why),
            contributing=functools.partial(self._follow, at),
            offset=self._plan.layout.edges[number],
            length=self._plan.layout.length,
            hosts=self._plan.hosts,
        )

    def _set_rate(self, rank: int, rate: control.Rate) -> None:
        """Notes new numbers of a worker's optimizer, such as the learning rate of its scheduler."""
        self._followed[rank] = self._recipe.of_rule(heard(self._recipe.optimizer, rate))

    def _follow(self, at: int, ranks: Collection[int]) -> None:
        """Sets the numbers of the rule for an update by these contributors.

        Each worker has an optimizer and a scheduler of its own: an update goes by those of who contributes. Where
        some of them may lie, it goes by the median of each number.
        """
        if not self._followed:
            return
        recipes = [self._followed.get(rank, self._beginning) for rank in sorted(ranks)]
        recipe = recipes[0] if self._recipe.robust.rule == NO_RULE else median_of(recipes)
        if self._rules[at].recipe != recipe:
            self._rules[at].follow(recipe)

    @property
    def everything(self) -> list[ServedSlice]:
        """Returns all slices that the node serves, copies of a neighbour's included."""
        return self.hosted + self._beside

    # ---- while the run goes on ---------------------------------------------------------------------------
    def begin(self) -> None:
        """Starts training: frees the initial weights, and starts copying."""
        self._node.forget(INITIAL)  # everybody has them; they would take as much room as the shard
        if self._copies:
            for at, hosted in enumerate(self.hosted):
                if hosted.role is not None:
                    self._node.holds[hosted.role] = functools.partial(self._copies.hold, at)
            self._copies.begin()

    def resume(self) -> None:
        """Continues after a replacement: copying begins anew, from the whole state."""
        if self._copies:
            self._copies.begin()

    def end(self) -> None:
        """Lets the captures take what there is, since no further version comes."""
        for captures in self._captures.values():
            captures.end()

    def restore(self, order: control.Restore) -> None:
        """Makes the slices what they were in the snapshot or the copy, and drops everything that was under way.

        It reports `Prepared`, with `failed` if the source has no complete copy. If the source is lost, it reports
        nothing: there will be another order, or the run ends.
        """
        self._carry_out(self._restoring.ordered(order))

    def _carry_out(self, actions: Iterable[RestoreAction]) -> None:
        """Carries out what follows from an order to restore, on the main thread."""
        for action in actions:
            match action:
                case FetchState(order=order):
                    self._fetch(order)
                case BecomeState() as become:
                    self._become_state(become)
                case ToCoordinator(message=message):
                    self._session.tell(message)
                case RolesHearLeft(rank=rank):
                    self._node.gone(rank)
                case RolesHearJoined(rank=rank):
                    self._node.came(rank)
                case MeetEverybody():
                    self._session.reach_all(self._neighbours if self._copies else ())
                case _:
                    assert_never(action)

    def _fetch(self, order: control.Restore) -> None:
        """Fetches what the order names; nothing follows where its source is lost."""
        try:
            self._fetched = self._states_from(order.source)
        except PeerLost:
            return  # there will be another order, or the run ends
        self._carry_out(self._restoring.fetched(order, complete=self._fetched is not None))

    def _become_state(self, become: BecomeState) -> None:
        """Makes the slices what was fetched, and reports what they are now."""
        states, self._fetched = self._fetched, None
        assert states is not None
        before, order = self._version(), become.order
        self._node.between_messages(lambda: self._swap(states, become.steps))
        done = tuple(self._first.done) if self._first else None
        departed, version = self._session.departed, self._version()
        self._carry_out(self._restoring.became(order, departed, before=before, version=version, done=done))

    def _states_from(self, source: str) -> list[SliceState] | None:
        """Returns the states of the slices; None where they are not all there. Raises PeerLost."""
        who = Party.parse(source)
        if who.kind == "coordinator":
            return list(map(together, fetch(self._node, who, self._slices, SNAPSHOT)))
        self._session.reach(who)
        if not self._node.version_of(who, COMPLETE):
            return None
        return fetch(self._node, who, range(len(self._slices)), COPY)

    def _swap(self, states: list[SliceState], steps: Iterable[BecomeStep]) -> None:
        """Takes the steps to what was fetched, between two messages."""
        for step in steps:
            match step:
                case ForgetCaptures():
                    for captures in self._captures.values():
                        captures.want(FORGET)
                case ForgetResolved():
                    self._session.reports.forget_settled()
                case ReplaceRoles():
                    for at, state in enumerate(states):
                        self._become(at, state)
                case ForgetCopies():
                    if self._copies:
                        self._copies.forget()
                case EnterServerView(server_view=view):
                    self._node.begin_server_view(view)
                case _:
                    assert_never(step)

    @property
    def _reports_samples(self) -> bool:
        """Returns True for the first server, to which the coordinator listens about leased samples. Its slices may lie
        anywhere in the model: the fastest server has the beginning."""
        return party.server(self._server) == FIRST

    @property
    def _first(self) -> ClockedServer | None:
        """Returns the role that settles leased samples, if it is here."""
        role = self.hosted[0].role if self._reports_samples else None
        return role if isinstance(role, ClockedServer) else None

    def _pending_of(self, rank: int) -> Data:
        """Returns the leased samples of a worker that wait in an open round here."""
        return self._first.pending(rank) if self._first else ()

    def _version(self) -> int:
        """Returns the highest version of the slices."""
        return max(getattr(hosted.role, "version", 0) for hosted in self.hosted)

    def _become(self, at: int, state: SliceState) -> None:
        """Makes slice `at` what `state` was taken of, with a new rule and a new role."""
        box = self._box
        assert box is not None, "only servers that hold the model are replaced"
        self._rules[at] = self._make_rule(self._slices[at])
        make_role = lambda w: box(self._scheme, self._place(at, w))  # noqa: E731
        role = self.hosted[at].role
        if role is not None:
            self._node.holds.pop(role, None)
        role = self.hosted[at].role = revive(state, self._rules[at], make_role)
        if self._copies:  # what is answered before all servers are there waits for a copy, too
            self._node.holds[role] = functools.partial(self._copies.hold, at)

    # ---- copies ------------------------------------------------------------------------------------------
    @property
    def _neighbours(self) -> tuple[Party, Party]:
        """Returns the servers before and after this one, in a ring."""
        count = self._plan.servers
        return party.server((self._server - 1) % count), party.server((self._server + 1) % count)

    def _make_copies(self) -> SliceReplication:
        """Returns the copies: this server's state goes to the next server, and that of the server before comes here."""
        before, after = self._neighbours
        of, parts = self._plan.layout.of, self._parts
        place = self._place(0, None)
        copies = SliceReplication(
            self._node,
            place,
            before=before.index,
            after=after.index,
            counts=(len(self._slices), len(of(before.index)), len(of(after.index))),
            nothing=NOTHING,
            state_of=self._state_of,
            mark_of=lambda at: mark_of(self.hosted[at].role),
        )
        longest = max(parts[number].stop - parts[number].start for number in of(before.index))
        self._beside = [ServedSlice(longest, role=copies)]
        return copies

    def _meet_neighbours(self) -> None:
        """Connects to the neighbours before training, so that a lost connection to one of them is noticed."""
        for other in set(self._neighbours):  # one of two calls the other
            if not self._is_later_incarnation and self._server < other.index:
                self._session.reach(other)
                self._node.read_state_of(other, PRESENCE)

    def _is_lost(self, who: Party) -> None:
        """Lets the copies hear that a neighbour is lost."""
        if self._copies and who.kind == "server":
            self._copies.lost(who.index)

    def _state_of(self, at: int) -> SliceState:
        """Returns the state of slice `at`, for a copy."""
        role = self.hosted[at].role
        assert role is not None
        return state_of(role, self._rules[at])


def _of_server(record: Record, server: int) -> Record:
    """Returns a record with the server's number in place of the slice's: in the trace a shard is known by its
    server."""
    match record:
        case Applied():
            return dataclasses.replace(record, shard=server)
        case Decided():
            return dataclasses.replace(record, party=f"server {server}")
    return record
