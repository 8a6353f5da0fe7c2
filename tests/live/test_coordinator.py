"""The coordinator's end of the control plane, against parties that follow a script."""

from __future__ import annotations

import contextlib
import math
import queue
from collections.abc import Iterator
from typing import Any

import pytest

from paceline.core.collective import Choice
from paceline.core.effects import Reply
from paceline.core.errors import ConfigError, PeerLost
from paceline.core.role import Place, Role
from paceline.core.sharding import Layout, lay_out
from paceline.core.trace import Ended, Evaluated, Membership, Record
from paceline.live import control
from paceline.live.coordinator import Coordinator, Phase, StopRule
from paceline.live.hub import Hub
from paceline.live.node import Node
from paceline.live.party import COORDINATOR, EVALUATOR, Party, server, worker
from paceline.live.recovery import Snapshots
from paceline.live.transport import Envelope, Kind
from tests.live.doubles import NumpyMemory, Recorder, net_threads, take, vector
from tests.live.stage import Ask, Said

W0, W1, S0 = worker(0), worker(1), server(0)


class Ears:
    """Keeps what the coordinator tells."""

    def __init__(self) -> None:
        self.told: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self.records: list[Record] = []

    def joined(self, who: Party, hello: control.Hello) -> None:
        self.told.put(("joined", who))

    def started(self, plan: control.Plan) -> None:
        self.told.put(("started", plan))

    def progressed(self, rank: int, progress: control.Progress) -> None:
        self.told.put(("progressed", (rank, progress.samples)))

    def recorded(self, record: Record) -> None:
        self.records.append(record)

    def failed(self, who: Party, cause: str, details: str) -> None:
        self.told.put(("failed", (who, cause, details)))

    def finished(self, reason: str, seconds: float) -> None:
        self.told.put(("finished", reason))


class Counting(Role):
    """A coordinator's box that knows who is gone."""

    gone_ranks: tuple[int, ...] = ()

    def on(self, now: float, src: int, message: Any) -> Iterator[Reply]:
        yield Reply(src, Said(v=message.v, n=len(self.gone_ranks)))

    def gone(self, now: float, rank: int) -> Iterator[Reply]:
        self.gone_ranks += (rank,)
        yield from ()


class Company:
    """A coordinator and everybody else on one hub; a test says what each of them says."""

    def __init__(
        self,
        workers: int = 2,
        servers: int = 1,
        evaluator: bool = True,
        stop_rule: StopRule | None = None,
        mean: str = "ring",
        dead_after_s: float = math.inf,
        min_workers: int = 1,
        snapshots: Snapshots | None = None,
    ) -> None:
        self.hub, self.ears = Hub(), Ears()
        self.everybody = [server(s) for s in range(servers)] + [worker(r) for r in range(workers)]
        self.everybody += [EVALUATOR] if evaluator else []
        self.workers = [who for who in self.everybody if who.kind == "worker"]
        self.heard = {who: Recorder() for who in self.everybody}
        self.escaped: queue.SimpleQueue[BaseException] = queue.SimpleQueue()
        transport = self.hub.transport(COORDINATOR, self.escaped.put)
        self.coordinator = Coordinator(
            transport,
            Node(transport, NumpyMemory()),
            self.ears,
            workers=workers,
            servers=servers,
            evaluator=evaluator,
            stop_rule=stop_rule or StopRule(),
            make_role=self._role,
            lay_out=lambda ready, hellos: (lay_out(ready[0].length, len(hellos), 4), "a reason"),
            choose_mean=lambda ready, hellos, servers: Choice(mean, f"{len(hellos)} workers, {servers} servers"),
            seed=5,
            dead_after_s=dead_after_s,
            min_workers=min_workers,
            snapshots=snapshots,
        )
        assert self.coordinator.open() == "hub:coordinator"
        for who in self.everybody:
            self.hub.transport(who).open(self.heard[who])

    def _role(self, plan: control.Plan, place: Place) -> Role:
        self.plan, self.place = plan, place
        return Counting(None, place)

    def say(self, who: Party, message: Any, kind: Kind = Kind.CONTROL) -> None:
        member = self.hub.find(who)
        assert member is not None
        member.send(COORDINATOR, Envelope(kind, message, 1 if kind is Kind.CALL else 0))

    def hears(self, who: Party) -> Any:
        src, message = self.heard[who].next()
        assert src == COORDINATOR
        return message

    def all_hear(self, kind: type, among: list[Party] | None = None) -> None:
        for who in among or self.everybody:
            assert isinstance(self.hears(who), kind)

    def told(self, what: str) -> Any:
        """What goes with the next `what`; other things told before it are passed over."""
        while True:
            kind, value = take(self.ears.told)
            if kind == what:
                return value

    def settled(self) -> None:
        """Everything said so far has been heard."""
        done: queue.SimpleQueue[None] = queue.SimpleQueue()
        member = self.hub.find(COORDINATOR)
        assert member is not None
        member.call_later(0.0, lambda: done.put(None))
        take(done)

    def hello(self) -> None:
        for who in self.everybody:
            self.say(who, control.Hello(address=f"hub:{who}", pid=1, host="here", device="cpu"))
        self.all_hear(control.Roster)

    def train(self) -> None:
        """Everything up to Go."""
        self.hello()
        for who in self.workers:
            self.say(who, ready())
        for who in self.everybody:
            self.hears(who)
            if who != EVALUATOR:
                self.say(who, control.Prepared())
        self.all_hear(control.Go)

    def close(self) -> None:
        for who in [*self.everybody, COORDINATOR]:
            member = self.hub.find(who)
            if member is not None:
                member.close()
        assert net_threads() == []


def ready(fingerprint: str = "f", length: int = 10, seconds: float = 0.5) -> control.Ready:
    return control.Ready(length=length, fingerprint=fingerprint, seconds_per_step=seconds, optimizer="sgd")


def progress(samples: int) -> control.Progress:
    return control.Progress(
        steps=1,
        samples=samples,
        exchanges=1,
        seconds_computing=0,
        seconds_waiting=0,
        seconds_communicating=0,
        bytes_up=0,
        bytes_down=0,
    )


def judged(accuracy: float, at: float = 0.0) -> control.Judged:
    return control.Judged(at=at, samples=0, accuracy=accuracy, loss=1.0, seconds=0.1)


@pytest.fixture
def companies() -> Iterator[Any]:
    made: list[Company] = []

    def make(**more: Any) -> Company:
        made.append(Company(**more))
        return made[-1]

    yield make
    for company in made:
        company.close()


def test_a_run_is_brought_up_step_by_step(companies: Any) -> None:
    company: Company = companies()
    assert company.coordinator.phase is Phase.GATHERING
    company.hello()
    assert company.coordinator.phase is Phase.READYING
    company.say(W0, ready(seconds=0.25))
    company.say(W1, ready())
    plan = company.hears(S0)
    assert plan == control.Plan(
        workers=2,
        servers=1,
        length=10,
        layout=Layout((0, 3, 6, 10), (0, 0, 0)),
        seconds_per_step=(0.25, 0.5),
        optimizer="sgd",
        devices=("cpu", "cpu"),
        hosts=("here", "here"),
        mean="ring",
        notes=("a reason", "2 workers, 1 servers"),
    )
    company.settled()
    assert company.coordinator.phase is Phase.PLACING_SERVERS
    assert all(company.heard[who].delivered.empty() for who in (W0, W1, EVALUATOR)), "the servers come first"
    company.say(S0, control.Prepared())
    assert [company.hears(who) for who in (W0, W1, EVALUATOR)] == [plan] * 3
    company.say(W0, control.Prepared())
    company.settled()
    assert company.coordinator.missing() == [W1]
    company.say(W1, control.Prepared())
    company.all_hear(control.Go)
    assert company.coordinator.phase is Phase.TRAINING
    assert company.told("started") == plan
    assert (company.place.workers, company.place.seed, company.place.seconds_per_step) == ((0, 1), 5, (0.25, 0.5))


def test_everybody_learns_where_everybody_is(companies: Any) -> None:
    company: Company = companies()
    for who in company.everybody:
        company.say(who, control.Hello(address=f"hub:{who}", pid=1, host="here", device="cpu"))
    for who in company.everybody:
        assert company.hears(who).addresses == {str(other): f"hub:{other}" for other in company.everybody}
    joined = [record.party for record in company.ears.records if isinstance(record, Membership)]
    assert sorted(joined) == sorted(map(str, company.everybody))


@pytest.mark.parametrize("absent", [S0, W1, EVALUATOR], ids=str)
def test_whoever_never_says_hello_is_named(companies: Any, absent: Party) -> None:
    company: Company = companies()
    for who in company.everybody:
        if who != absent:
            company.say(who, control.Hello(address="a", pid=1, host="h", device="cpu"))
    company.settled()
    assert company.coordinator.missing() == [absent]
    assert company.coordinator.phase.value == "waiting for everybody to say hello"


def test_a_run_without_servers_has_nothing_to_place_on_them(companies: Any) -> None:
    company: Company = companies(servers=0, evaluator=False)
    company.train()
    assert company.plan.servers == 0


def test_a_speed_that_one_worker_does_not_know_is_known_of_nobody(companies: Any) -> None:
    company: Company = companies(evaluator=False)
    company.hello()
    company.say(W0, ready())
    company.say(W1, ready(seconds=0.0))
    assert company.hears(S0).seconds_per_step == ()


@pytest.mark.parametrize("other", [ready(fingerprint="g"), ready(length=11)], ids=["names", "length"])
def test_a_worker_with_another_model_is_refused_by_name(companies: Any, other: control.Ready) -> None:
    company: Company = companies()
    company.hello()
    company.say(W0, ready())
    company.say(W1, other)
    refused = take(company.escaped)
    assert isinstance(refused, ConfigError)
    assert "worker 1" in str(refused)
    assert "worker 0" in str(refused)
    assert company.heard[S0].delivered.empty()


def finish(company: Company, reason: str) -> None:
    """Everybody follows a Stop to the end."""
    for who in company.workers:
        message = company.hears(who)
        while isinstance(message, control.Total):
            message = company.hears(who)
        assert message == control.Stop(reason=reason)
    company.settled()
    assert company.coordinator.stopping
    for who in company.workers:
        company.say(who, control.Left(reason=reason))
    company.all_hear(control.Finish)
    for who in company.everybody[1:]:
        company.say(who, control.Saved())
    company.settled()
    assert company.coordinator.phase is Phase.FINISHING
    assert company.coordinator.missing() == company.everybody[:1]
    company.say(company.everybody[0], control.Saved())
    company.all_hear(control.Exit)
    assert company.told("finished") == reason
    assert [record.reason for record in company.ears.records if isinstance(record, Ended)] == [reason]


def test_the_run_ends_with_the_samples_of_all_workers_together(companies: Any) -> None:
    company: Company = companies(stop_rule=StopRule(samples=100))
    company.train()
    company.say(W0, progress(60))
    assert company.hears(W0) == control.Total(samples=60)
    company.say(W1, progress(39))
    assert company.hears(W1) == control.Total(samples=99)
    company.say(W0, progress(61))
    company.settled()
    assert [company.hears(EVALUATOR) for _ in range(3)] == [control.Total(samples=n) for n in (60, 99, 100)]
    finish(company, "epochs")
    assert company.coordinator.samples == 100


def test_the_run_ends_when_its_seconds_are_over(companies: Any) -> None:
    company: Company = companies(stop_rule=StopRule(seconds=0.05))
    company.train()
    finish(company, "seconds")


def test_the_run_ends_when_the_target_is_reached_and_not_before(companies: Any) -> None:
    company: Company = companies(stop_rule=StopRule(target_accuracy=0.9))
    company.train()
    company.say(EVALUATOR, judged(0.89))
    company.settled()
    assert not company.coordinator.stopping
    company.say(EVALUATOR, judged(0.9))
    finish(company, "target accuracy")
    accuracies = [record.accuracy for record in company.ears.records if isinstance(record, Evaluated)]
    assert accuracies == [0.89, 0.9]


def test_the_first_rule_that_holds_is_the_reason(companies: Any) -> None:
    company: Company = companies(stop_rule=StopRule(target_accuracy=0.5))
    company.train()
    company.coordinator.stop("interrupted")
    company.coordinator.stop("interrupted again")
    company.say(EVALUATOR, judged(0.9))
    finish(company, "interrupted")


def test_the_last_look_is_dated_no_later_than_the_end(companies: Any) -> None:
    company: Company = companies()
    company.train()
    company.coordinator.stop("enough")
    company.settled()
    company.say(EVALUATOR, judged(0.9, at=1e6))
    company.settled()
    (last,) = [record for record in company.ears.records if isinstance(record, Evaluated)]
    (ended,) = [record for record in company.ears.records if isinstance(record, Ended)]
    assert last.at == ended.at
    finish(company, "enough")


def test_a_worker_that_leaves_early_is_gone_for_all_others_and_the_scheme(companies: Any) -> None:
    company: Company = companies()
    company.train()
    company.say(W0, control.Left(reason="steps"))
    assert company.hears(S0) == control.Gone(rank=0)
    assert company.hears(EVALUATOR) == control.Gone(rank=0)
    assert company.hears(W1) == control.Gone(rank=0)
    company.say(W1, Ask(v=vector(1), n=0), Kind.CALL)
    assert company.hears(W1).n == 1, "the coordinator's box knows of it"
    assert company.coordinator.phase is Phase.TRAINING
    company.coordinator.stop("enough")
    assert company.hears(W1) == control.Stop(reason="enough")
    company.say(W1, control.Left(reason="enough"))
    company.settled()
    assert company.coordinator.phase is Phase.FINISHING
    assert company.heard[W0].next()[1] == control.Finish(holder=1), "it is not told to stop, for it has"


def test_the_run_is_over_when_the_last_worker_has_left_by_itself(companies: Any) -> None:
    company: Company = companies()
    company.train()
    for who in (W1, W0):
        company.say(who, control.Left(reason="steps"))
    assert company.hears(W0) == control.Gone(rank=1), "and worker 1 hears of nobody: it had left before"
    for who in (W0, W1):
        assert company.hears(who) == control.Finish(holder=0)
    for who in company.everybody:
        company.say(who, control.Saved())
    assert company.told("finished") == "steps"


def test_who_cannot_go_on_is_told_with_the_cause(companies: Any) -> None:
    company: Company = companies()
    company.hello()
    company.say(W1, control.Failed(cause="no such file", details="Traceback ..."))
    assert company.told("failed") == (W1, "no such file", "Traceback ...")


@pytest.mark.parametrize("while_training", [False, True])
def test_who_is_lost_is_told_and_the_others_hear_what_they_must(companies: Any, while_training: bool) -> None:
    company: Company = companies()
    if while_training:
        company.train()
    else:
        company.hello()
    lost = company.hub.find(W0)
    assert lost is not None
    lost.close()
    assert company.told("failed") == (W0, "lost worker 0: it left", "")
    company.coordinator.stop("enough")
    if while_training:
        assert company.hears(W1) == control.Stop(reason="enough")
    company.settled()
    assert company.escaped.empty()


def test_the_others_go_on_without_a_worker_that_is_lost(companies: Any) -> None:
    company: Company = companies(mean="servers")
    company.train()
    lost = company.hub.find(W0)
    assert lost is not None
    lost.close()
    for who in (S0, EVALUATOR, W1):
        assert company.hears(who) == control.Gone(rank=0, lost=True)
    company.coordinator.ended(W0, "it was killed")  # its process is heard of as well
    company.settled()
    told = [r.reason for r in company.ears.records if isinstance(r, Membership) and r.event == "lost"]
    assert told == ["it left; 1 of 2 continue"]
    company.say(W1, control.Left(reason="steps"))
    for who in (S0, EVALUATOR, W1):
        while not isinstance(heard := company.hears(who), control.Finish):
            assert isinstance(heard, control.Gone | control.Stop)
        assert heard.holder == 1
        company.say(who, control.Saved())
    assert company.told("finished") == "steps"


def test_a_silent_worker_is_given_up_and_nothing_that_it_says_is_heard(companies: Any) -> None:
    company: Company = companies(workers=2, servers=0, evaluator=False, mean="servers", dead_after_s=1.0)
    company.train()
    told: list[Any] = []
    while not told:
        company.say(W1, control.Beat())
        with contextlib.suppress(queue.Empty):
            told.append(company.heard[W1].delivered.get(timeout=0.1)[1].message)
    assert told == [control.Gone(rank=0, lost=True)]
    with pytest.raises(PeerLost):
        company.say(W0, control.Beat())
    assert take(company.heard[W0].losses)[0] == COORDINATOR
    (told,) = [r.reason for r in company.ears.records if isinstance(r, Membership) and r.event == "lost"]
    assert told.startswith("silent for 1.")
    assert told.endswith("; 1 of 2 continue")


class Back:
    """Worker 0 of a company of two, killed and in its second life."""

    def __init__(self, company: Company) -> None:
        self.company = company
        company.train()
        company.say(W0, progress(samples=7))
        company.told("progressed")
        company.all_hear(control.Total, [W0, *(who for who in company.everybody if who == EVALUATOR)])
        kill(company, W0)
        for who in [*company.everybody[:1], W1]:
            assert company.hears(who) == control.Gone(rank=0, lost=True)
        self.hello()

    def hello(self, incarnation: int = 1) -> None:
        heard = self.company.heard[W0] = Recorder()
        self.company.hub.transport(W0, incarnation=incarnation).open(heard)
        self.company.say(
            W0, control.Hello(address="hub:again", pid=2, host="here", device="cpu", incarnation=incarnation)
        )


def kill(company: Company, who: Party) -> None:
    member = company.hub.find(who)
    assert member is not None
    member.close()


def test_a_lost_worker_comes_back_once_all_know_of_it_and_goes_on_counting(companies: Any) -> None:
    company: Company = companies(mean="servers", evaluator=False)
    Back(company)
    roster = company.hears(W0)
    assert (roster.lives, roster.gone, roster.lost) == ((1, 0), (0,), (0,))
    company.say(W0, ready())
    came = control.Came(rank=0, incarnation=1, view=3, address="hub:again", host="here")
    assert [company.hears(who) for who in (S0, W1)] == [came, came]
    company.say(S0, control.Aware(view=3))
    company.settled()
    assert company.heard[W0].delivered.empty()  # not everybody knows
    company.say(W1, control.Aware(view=3))
    assert isinstance(company.hears(W0), control.Plan)
    go = company.hears(W0)
    assert (go.samples, go.steps) == (7, 1)
    assert go.at > 0
    company.say(W0, progress(samples=5))
    assert company.told("progressed") == (0, 12)
    assert company.hears(W0) == control.Total(samples=12)
    (back,) = [r.reason for r in company.ears.records if isinstance(r, Membership) and r.event == "returned"]
    assert back == "life 2; 2 of 2 train"


def test_one_who_is_lost_again_before_it_is_back_is_missed_by_nobody(companies: Any) -> None:
    company: Company = companies(mean="servers", evaluator=False)
    back = Back(company)
    assert isinstance(company.hears(W0), control.Roster)
    kill(company, W0)
    back.hello(incarnation=2)
    assert company.hears(W0).lives == (2, 0)
    company.settled()
    assert company.heard[S0].delivered.empty()
    lost = [r.reason for r in company.ears.records if isinstance(r, Membership) and r.event == "lost"]
    assert lost[1:] == ["it left before it was back; 1 of 2 continue"]


def test_a_newcomer_with_another_model_is_not_let_in(companies: Any) -> None:
    company: Company = companies(mean="servers", evaluator=False)
    Back(company)
    company.hears(W0)
    company.say(W0, ready(fingerprint="another"))
    assert take(company.heard[W0].losses)[0] == COORDINATOR
    (_, why) = [r.reason for r in company.ears.records if isinstance(r, Membership) and r.event == "lost"]
    assert why.startswith("worker 0 trains another model than worker 0 ")


def test_one_who_comes_when_the_run_is_stopping_is_told_so(companies: Any) -> None:
    company: Company = companies(mean="servers", evaluator=False)
    company.train()
    kill(company, W0)
    company.coordinator.stop("enough")
    company.settled()
    heard = company.heard[W0] = Recorder()
    company.hub.transport(W0, incarnation=1).open(heard)
    company.say(W0, control.Hello(address="hub:again", pid=2, host="here", device="cpu", incarnation=1))
    assert company.hears(W0) == control.Stop(reason="enough")


@pytest.mark.parametrize("announced", [False, True])
def test_one_who_is_not_back_when_the_run_ends_does_not_take_part_any_more(companies: Any, announced: bool) -> None:
    company: Company = companies(mean="servers", evaluator=False)
    Back(company)
    assert isinstance(company.hears(W0), control.Roster)
    if announced:
        company.say(W0, ready())
        company.settled()
    company.coordinator.stop("enough")
    assert company.hears(W0) == control.Stop(reason="enough")
    if not announced:
        company.say(W0, ready())
    for who in (S0, W1):
        company.say(who, control.Aware(view=3))
    company.say(W1, control.Left(reason="enough"))
    company.settled()
    assert company.coordinator.phase is Phase.FINISHING
    kill(company, W0)
    for who in (S0, W1):
        company.say(who, control.Saved())
    assert company.told("finished") == "enough"
    events = [record.event for record in company.ears.records if isinstance(record, Membership)]
    assert events == ["joined"] * 3 + ["lost", "left"]


def test_fewer_workers_than_asked_for_end_the_run(companies: Any) -> None:
    company: Company = companies(workers=3, mean="servers", min_workers=2)
    company.train()
    kill(company, W0)
    company.settled()
    kill(company, W1)
    who, cause, _ = company.told("failed")
    assert who == W1
    assert cause == "lost worker 1: it left; --min-workers 2 would not be left"


def test_the_last_worker_that_is_lost_ends_the_run(companies: Any) -> None:
    company: Company = companies(workers=1, mean="servers")
    company.train()
    lost = company.hub.find(W0)
    assert lost is not None
    lost.close()
    assert company.told("failed") == (W0, "lost worker 0: it left", "")


def test_who_leaves_after_the_end_is_not_lost(companies: Any) -> None:
    company: Company = companies()
    company.train()
    company.coordinator.stop("enough")
    finish(company, "enough")
    for who in company.everybody:
        member = company.hub.find(who)
        assert member is not None
        member.close()
    company.settled()
    assert company.ears.told.empty()


def test_records_of_the_others_are_handed_on_as_they_were(companies: Any) -> None:
    company: Company = companies()
    company.train()
    lines = ['{"kind":"ended","at":1.5,"reason":"a"}', '{"kind":"membership","at":2,"party":"p","event":"e"}']
    company.say(S0, control.Records(lines="\n".join(lines)))
    company.settled()
    assert company.ears.records[-2:] == [Ended(at=1.5, reason="a"), Membership(at=2, party="p", event="e")]


@pytest.mark.parametrize("message", [control.Go(), control.Exit()], ids=["Go", "Exit"])
def test_what_only_the_coordinator_says_is_refused_from_others(companies: Any, message: Any) -> None:
    company: Company = companies()
    company.say(W0, message)
    assert str(take(company.escaped)) == f"worker 0 may not send {type(message).__name__} as CONTROL to coordinator"
