"""Leads a worker into its run and out of it, and loads the final model at the end.

    join    Hello was sent before; connect, measure links and steps, Ready -> Plan; weights of worker 0; Prepared
    begin   the coordinator says Go
    leave   Left; the carrier of means drains; Finish names who has the last model; load it; Saved; Exit

A worker that joins late takes over the model and state of the others instead of worker 0's first weights.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

from paceline.codec.pipeline.collective import MeanCoder
from paceline.core.coordination import control_messages as control
from paceline.core.coordination import loop_messages, party
from paceline.core.coordination.control_messages import Links
from paceline.core.coordination.party import Party
from paceline.core.coordination.same_model import packed
from paceline.core.effects import EVERY_BIT, Mean
from paceline.core.errors import Diverged, PeerLost, Stopped
from paceline.core.paramserver.gradient_check import OFF
from paceline.core.paramserver.peer_check import REFUSED, OwnResults, PeerCheck
from paceline.core.role import Role, RoleContext, Update
from paceline.core.trace import Decided
from paceline.engine.adder import FlatAdder
from paceline.engine.model.flat_model import FlatModel
from paceline.engine.vectors.flat import FlatMemory, finite
from paceline.live.collectives.peer_backend import PeerCarrier
from paceline.live.control.link_probe import LinkRounds
from paceline.live.control.session import Session
from paceline.live.state.current_model import final_model
from paceline.live.state.late_join import come_late, others
from paceline.runtime.checkpointing.state_on_request import ServerState, give_servers
from paceline.runtime.checkpointing.worker_state import by_round
from paceline.runtime.collectives.backends import LiveCarrier, make_carrier, measured_links
from paceline.runtime.collectives.choice import meets_for_means
from paceline.runtime.collectives.powersgd import LowRankMeans
from paceline.runtime.server.server import INITIAL
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.spec.process_spec import ProcessSpec
from paceline.runtime.worker.batchnorm_average import WorkerStatistics
from paceline.runtime.worker.shared_optimizer_state import SharedOptimizerState
from paceline.runtime.worker.shared_rule import SharedRule
from paceline.runtime.worker.steps.untrained_state import SharedRest


class WorkerLifecycle:
    """Holds a worker's part in its run, from its first message to its last."""

    def __init__(
        self,
        spec: ProcessSpec,
        session: Session,
        recipe: Recipe,
        flat: FlatModel,
        statistics: WorkerStatistics,
        optimizer_state: SharedOptimizerState,
    ) -> None:
        self._spec, self._session, self._recipe = spec, session, recipe
        self._flat, self._statistics, self.optimizer_state = flat, statistics, optimizer_state
        self._node = session.node
        self._scheme = recipe.make_scheme()
        self._rank = spec.who.index
        self._rest = SharedRest(session, flat.rest)
        self._carrier: LiveCarrier | None = None
        self._same_updates = by_round(self._scheme, spec.servers) and not self._scheme.trains_locally
        self._own = OwnResults(self._tell_result)
        self._check = None if recipe.gate.mode == OFF else self._own

    # ---- joining -----------------------------------------------------------------------------------------
    def join(
        self,
        update: Update,
        measure: Callable[[], float] | None,
        clock: int = 0,
        samples: int = 0,
        of_servers: ServerState | None = None,
    ) -> control.Plan:
        """Joins the run, until everybody has its role; training may start when the coordinator says Go. Returns the
        plan.

            update   the rule of updates made on this worker
            measure  returns the seconds of a step
            clock    exchanges of this worker before it was resumed; `samples`: those of all workers
            of_servers  state that worker 0 has loaded for the servers
        """
        spec, session = self._spec, self._session
        self._samples_seen = samples
        # Workers have nobody expelled.
        self._node.message_checks.report_to(expel=lambda rank, why: None, on_strike=self._refused)
        session.connect([party.server(s) for s in range(spec.servers)])
        links = [] if session.late else session.links(spec.servers)
        # In three goes, with other work between them: rounds that are spread over some time hit fewer moments at which
        # another process starts up.
        _measure(links)
        peers = self._meet_workers()
        _measure(links)
        if session.late:
            session.meet_evaluator()
        seconds = measure() if measure else 0.0
        _measure(links)
        ready = control.Ready(
            length=len(self._flat),
            fingerprint=f"{self._flat.fingerprint()}/{self._flat.rest.fingerprint()}/{self._recipe.digest()}",
            seconds_per_step=max(seconds, spec.step_seconds),
            optimizer=self._recipe.to_json(),
            links=tuple(link.speeds[0] if link else 0.0 for link in links),
            links_max=tuple(link.speeds[1] if link else 0.0 for link in links),
            peers=peers,
            by_rows=self._flat.by_rows,
            tensors=self._flat.tensors if self._recipe.optimizer.needs_tensors else (),
            ways=session.ways(),
            layout=packed(self._flat.described()),
            batch_limit=spec.batch_limit,
        )
        session.tell(ready)
        plan = session.expect(control.Plan)
        self._carrier = self._with_factors(make_carrier(spec, session, plan, self._coder(), self._check))
        if session.late:
            self._come_late(plan, update)
        else:
            if of_servers is not None and self._rank == 0:  # before the first mean, with which their roles begin
                give_servers(self._node, of_servers, samples, plan.layout, self._flat.tensors)
            self._take_up(plan, update, clock)
        session.took_up()
        return plan

    def _refused(self, src: Party, why: str, strike: int) -> None:
        """Writes into the trace that a message of `src` was beyond its bounds."""
        me, now = str(party.worker(self._rank)), self._node.now()
        self._session.reports.note(Decided(at=now, party=me, rank=src.index, verdict=REFUSED, reason=f"{src}: {why}"))

    def _take_up(self, plan: control.Plan, update: Update, clock: int) -> None:
        """Takes worker 0's weights, and makes the role with them."""
        self._learn_layout(plan)
        absent = self._session.departed
        if self._rank and 0 not in absent:
            self._rest.take(0)
            self.optimizer_state.take(plan)
        elif not self._rank:
            self.optimizer_state.show()
        self.optimizer_state.give_rule(self._samples_seen)
        # Worker 0's weights become everybody's: a mean in which nobody else counts.
        counts, everybody = float(self._rank == 0), tuple(rank for rank in range(plan.workers) if rank not in absent)
        first = self._node.mean(Mean(self._flat.weights(), everybody, INITIAL, counts, EVERY_BIT))
        role = self._role(plan, update, first.v)
        role.go_on_at(clock)
        self._node.place(role, plan.layout, self._carrier)
        for rank in sorted(absent):  # they may come later
            self._node.gone(rank)
        self._node.times.reset()
        self._show_rule(update)

    def _show_rule(self, update: Update) -> None:
        """Shows newcomers what the rule remembers, where every worker makes the same updates by one of its own."""
        if self._same_updates:
            SharedRule(self._node, update, len(self._flat)).show()

    def _come_late(self, plan: control.Plan, update: Update) -> None:
        """Takes over model and state from the others, and enters the run. This worker's own weights are discarded."""
        session = self._session
        self._node.calls.retries = plan.replaced  # a server may be lost while it is asked for the model
        self._learn_layout(plan)
        try:
            role = self._take_over(plan, update)
        except Stopped:
            # So much for what was being asked. Others still show what they have, and this worker leaves as they do.
            role = self._take_over(plan, update)
        session.enter(role, plan.layout, self._carrier)
        self._show_rule(update)

    def _take_over(self, plan: control.Plan, update: Update) -> Role:
        """Returns the role, made of the state that the others show now."""
        self._take_rest(plan.workers)
        self._statistics.begin_as_newcomer()
        model_of = self._scheme.model_of(plan.servers)
        rule = SharedRule(self._node, update, len(self._flat))
        take = rule.take if self._same_updates else lambda rank: None
        return come_late(self._session, model_of, plan.workers, lambda w: self._role(plan, update, w), take)

    def _take_rest(self, workers: int) -> None:
        """Takes what is not trained, as it is now, from the first other worker that answers."""
        for rank in others(self._session, workers) if not self._rest.empty else ():
            with contextlib.suppress(PeerLost):
                self._rest.take(rank)
                return

    def _learn_layout(self, plan: control.Plan) -> None:
        """Sets codecs and layout, which messages to the servers need."""
        memory, tensors, slices = FlatMemory(self._spec.device), self._flat.tensors, plan.layout.slices
        self._node.channel.use(self._recipe.codecs.stage(memory, self._scheme, tensors=tensors, slices=slices))
        self._node.place(None, plan.layout, None if plan.servers else self._carrier)  # servers begin with them, too

    def _role(self, plan: control.Plan, update: Update, w: Any) -> Role:
        """Returns the worker's role of the scheme, with weights `w`."""
        place = RoleContext(
            me=self._rank,
            workers=tuple(range(plan.workers)),
            w=w,
            update=update,
            seed=self._recipe.seed,
            seconds_per_step=plan.seconds_per_step,
            note=self._session.reports.note,
            gate=None if self._recipe.gate.mode == OFF else PeerCheck(self._rank, self._session.reports.note),
            own=self._own,
            samples_seen=self._samples_seen,
            refuses=self._refuse,
            hosts=plan.hosts,
        )
        self._node.calls.retries = plan.replaced
        box: type[Role] = self._scheme.worker(len(plan.layout.holders))
        return box(self._scheme, place)

    def _refuse(self, rank: int, why: str) -> None:
        """Counts a false claim of another worker that the role, or the carrier of means, has found."""
        self._node.message_checks.strike(party.worker(rank), why)

    def _with_factors(self, carrier: LiveCarrier | None) -> LiveCarrier | None:
        """Returns `carrier`, wrapped for PowerSGD if its codec is used."""
        rank = self._recipe.codecs.low_rank
        if not rank:
            return carrier
        shapes, timeout_s = [shape for _, shape in self._flat.layout()], self._spec.timeout_s
        by_servers, check = self._node.out.mean_by_servers, self._check
        return LowRankMeans(shapes, rank, by_servers, carrier, timeout_s=timeout_s, check=check)

    def _coder(self) -> MeanCoder | None:
        """Returns the codec of means that workers carry themselves; None if nothing is encoded."""
        return self._recipe.codecs.coder(FlatMemory(self._spec.device), self._scheme, self._flat.tensors)

    def _tell_result(self, number: int, finite: bool, mean: bool) -> None:
        """Tells the coordinator that a result of this worker is not finite, or is so again."""
        with contextlib.suppress(PeerLost):  # `lost` is about to be told
            self._session.tell(loop_messages.OwnResult(number=number, finite=finite, mean=mean))

    def _meet_workers(self) -> Links:
        """Connects to the other workers where the scheme or its means ask for that; returns the measured links,
        or ()."""
        spec, session = self._spec, self._session
        means = meets_for_means(spec.allreduce, self._scheme, spec.servers, spec.workers)
        if means or self._scheme.connects_workers(spec.servers):
            memory, coder = FlatMemory(spec.device), self._coder()
            self._node.peers = PeerCarrier(
                session.transport,
                memory,
                FlatAdder(),
                coder=coder,
                check=self._check,
                refuse=self._refuse,
                most_weight=lambda: self._node.message_checks.limits.total_weight,
            )
            session.meet_workers()
        return measured_links(session) if means and spec.allreduce == "auto" and not session.late else ()

    # ---- leaving -----------------------------------------------------------------------------------------
    def leave(self, reason: str, *, drained: bool = False) -> None:
        """Takes no further part, and loads the final model, once nobody trains any more.

        `drained`: end at once, without the final model, where the others can do without this worker. Raises Diverged
        if the final model is not finite and no evaluator reports that.
        """
        try:
            self._session.leave(reason, drained=drained)
            if self._carrier is not None:
                self._carrier.drain()
            finish = self._session.wait_for_finish()
            if finish is not None:
                self._take_final_model(finish.holder)
                self._session.done()
        except Diverged as error:
            self._session.tell(control.Failed(cause=f"worker {self._rank}: {error}", details=""))
            raise
        finally:
            if self._carrier is not None:
                self._carrier.close()
            self._session.close()

    def _take_final_model(self, holder: int) -> None:
        """Loads the final model, the same for everybody, with the batch-norm statistics of all workers.

        Where the model is not finite the weights stay as they are; this raises Diverged, unless an evaluator is present
        to report it.
        """
        self._statistics.take_final(holder)
        model_of = self._scheme.model_of(self._spec.servers)
        final = final_model(self._session, model_of, holder, self._spec.workers)
        self.optimizer_state.take_final(holder)
        if finite(final):
            self._flat.touched()  # the loop may have written to `p.data` since it had these very weights
            self._flat.load(final)
        elif not self._session.has(party.EVALUATOR):
            raise Diverged(
                "the last model has NaN or infinity, and was not loaded: the run has diverged; lower the rate"
            )
        self._flat.zero_grad()

    def traffic(self) -> tuple[int, int]:
        """Returns the bytes sent and received."""
        up, down = self._session.traffic()
        more = self._carrier.traffic() if self._carrier is not None else (0, 0)
        return up + more[0], down + more[1]


def _measure(links: Sequence[LinkRounds | None]) -> None:
    """Measures each link once more."""
    for link in links:
        if link is not None:
            link.measure()
