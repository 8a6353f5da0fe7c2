"""Workers that the coordinator loses while a run goes on, and those that come back."""

from __future__ import annotations

import contextlib
import dataclasses
import queue
from typing import Any

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.lifecycle import RunPhase
from paceline.core.coordination.party import COORDINATOR, EVALUATOR, Party, worker
from paceline.core.errors import PeerLost
from paceline.core.trace import LostWork, MemberChange
from paceline.live.node.timing import Times
from paceline.runtime.worker.loop.progress import ProgressCounters
from tests.live.fakes import Recorder, take
from tests.live.scripted_parties import S0, W0, W1, Company, finish, progress, ready


@pytest.mark.parametrize("while_training", [False, True])
def test_who_is_lost_is_told_and_the_others_hear_what_they_must(companies: Any, while_training: bool) -> None:
    company: Company = companies()
    if while_training:
        company.train()
    else:
        company.hello()
    company.kill(W0)
    assert company.told("failed") == (W0, "lost worker 0: it left", "")
    company.coordinator.stop("enough")
    if while_training:
        assert company.hears(W1) == control.Stop(reason="enough")
    company.settled()
    assert company.escaped.empty()


def test_the_others_go_on_without_a_worker_that_is_lost(companies: Any) -> None:
    company: Company = companies(allreduce="servers")
    company.train()
    company.kill(W0)
    for who in (S0, EVALUATOR, W1):
        assert company.hears(who) == control.WorkerLeft(rank=0, lost=True)
    company.coordinator.ended(W0, "it was killed")  # its process is heard of as well
    company.settled()
    told = [r.reason for r in company.ears.records if isinstance(r, MemberChange) and r.event == "lost"]
    assert told == ["it left; 1 of 2 continue"]
    company.say(W1, control.Left(reason="steps"))
    for who in (S0, EVALUATOR, W1):
        while not isinstance(heard := company.hears(who), control.Finish):
            assert isinstance(heard, control.WorkerLeft | control.Stop)
        assert heard.holder == 1
        company.say(who, control.Saved())
    assert company.told("finished") == "steps"


def ends_in_order(company: Company, reason: str, holder: int, of: Party | None = None) -> None:
    """Those who are left finish: worker `of`, who is the holder unless another one is named."""
    left = of or worker(holder)
    for who in (S0, EVALUATOR, left):
        while not isinstance(heard := company.hears(who), control.Finish):
            assert isinstance(heard, control.WorkerLeft | control.Stop)
        assert heard.holder == holder
    for who in (S0, EVALUATOR, left):
        company.say(who, control.Saved())
    assert company.told("finished") == reason


def test_local_work_that_is_lost_with_a_worker_is_taken_off_its_steps_and_samples_and_recorded(companies: Any) -> None:
    company: Company = companies(allreduce="servers")
    company.train()
    company.say(W1, dataclasses.replace(progress(48), steps=6, samples_alone=16, steps_alone=2))
    company.settled()
    company.kill(W1)
    company.settled()
    [lost] = [record for record in company.ears.records if isinstance(record, LostWork)]
    assert (lost.party, lost.rank, lost.steps, lost.samples) == ("worker 1", 1, 2, 16)


@pytest.mark.parametrize("mean", ["servers", "ring"])
def test_a_worker_that_is_killed_while_it_stops_takes_nothing_with_it(companies: Any, mean: str) -> None:
    company: Company = companies(allreduce=mean)
    company.train()
    company.coordinator.stop("interrupted by SIGINT")
    company.settled()
    company.say(W1, control.Left(reason="interrupted by SIGINT"))
    company.settled()
    company.kill(W0)
    ends_in_order(company, "interrupted by SIGINT", 1)


@pytest.mark.parametrize("mean", ["servers", "ring"])
def test_a_worker_that_is_killed_while_others_look_at_the_last_model_is_not_waited_for(
    companies: Any, mean: str
) -> None:
    company: Company = companies(allreduce=mean)
    company.train()
    for who in (W0, W1):
        company.say(who, control.Left(reason="steps"))
        company.settled()
    company.kill(W0)
    ends_in_order(company, "steps", 1)


def test_a_worker_that_is_killed_after_its_last_step_ends_nothing(companies: Any) -> None:
    company: Company = companies(allreduce="servers")
    company.train()
    company.say(W0, control.Left(reason="steps"))
    company.settled()
    company.kill(W0)
    company.settled()
    assert company.coordinator.phase is RunPhase.TRAINING
    company.say(W1, control.Left(reason="steps"))
    ends_in_order(company, "steps", 1)


def test_with_the_one_that_has_the_last_model_the_run_fails(companies: Any) -> None:
    company: Company = companies(allreduce="servers")
    company.train()
    for who in (W0, W1):
        company.say(who, control.Left(reason="steps"))
        company.settled()
    company.kill(W1)
    assert company.told("failed") == (W1, "lost worker 1: it left", "")


def test_a_silent_worker_is_given_up_and_nothing_that_it_says_is_heard(companies: Any) -> None:
    company: Company = companies(workers=2, servers=0, evaluator=False, allreduce="servers", dead_after_s=1.0)
    company.train()
    told: list[Any] = []
    while not told:
        company.say(W1, control.Beat())
        with contextlib.suppress(queue.Empty):
            told.append(company.heard[W1].delivered.get(timeout=0.1)[1].message)
    assert told == [control.WorkerLeft(rank=0, lost=True)]
    with pytest.raises(PeerLost):
        company.say(W0, control.Beat())
    assert take(company.heard[W0].losses)[0] == COORDINATOR
    (told,) = [r.reason for r in company.ears.records if isinstance(r, MemberChange) and r.event == "lost"]
    assert told.startswith("silent for ")
    assert told.endswith("; 1 of 2 continue")


def test_one_whose_numbers_are_bad_is_put_out_for_good(companies: Any) -> None:
    company: Company = companies(allreduce="servers")
    company.train()
    company.say(S0, control.Unfit(rank=0, reason="bad numbers: why"))
    for who in (S0, EVALUATOR, W1):
        assert company.hears(who) == control.WorkerLeft(rank=0, lost=True)
    company.say(S0, control.Unfit(rank=0, reason="another slice says so, too"))
    company.say(S0, control.Unfit(rank=1, reason="and the last one stays: the run could not do without it"))
    company.settled()
    told = [r.reason for r in company.ears.records if isinstance(r, MemberChange) and r.event == "lost"]
    assert told == ["expelled: bad numbers: why; it is not started again; 1 of 2 continue"]
    assert company.coordinator.banned == {W0}
    company.kill(W0)  # which ends itself, cut off as it is
    company.heard[W0] = Recorder()
    company.hub.transport(W0, incarnation=1).open(company.heard[W0])
    company.say(W0, control.Hello(address="hub:again", pid=2, host="here", device="cpu", incarnation=1))
    assert company.hears(W0) == control.Stop(reason="it was expelled from the run")


def test_the_failure_of_a_worker_ends_the_run_but_not_of_one_whose_claims_were_refused(companies: Any) -> None:
    company: Company = companies(allreduce="servers")
    company.train()
    company.say(W0, dataclasses.replace(progress(samples=1), steps=-1))
    company.say(W0, control.Failed(cause="worker 0: nonsense", details=""))
    for who in (S0, EVALUATOR, W1):
        while isinstance(heard := company.hears(who), control.Total):
            pass
        assert heard == control.WorkerLeft(rank=0, lost=True)
    company.say(W1, control.Failed(cause="worker 1: a bug", details="where"))
    assert company.told("failed") == (W1, "worker 1: a bug", "where")


@pytest.mark.parametrize("fails", [False, True])
def test_one_that_is_put_out_while_the_run_ends_is_not_waited_for(companies: Any, fails: bool) -> None:
    company: Company = companies(allreduce="servers")
    company.train()
    for who in (W0, W1):  # the last one has the last model
        company.say(who, control.Left(reason="steps"))
    company.settled()
    company.say(S0, control.Unfit(rank=0, reason="it asked for what cannot be"))
    if fails:
        company.settled()
        company.say(W0, control.Failed(cause="worker 0: nobody answers", details=""))
    ends_in_order(company, "steps", holder=1)
    told = [r.reason for r in company.ears.records if isinstance(r, MemberChange) and r.event == "lost"]
    assert told == ["expelled: it asked for what cannot be; it is not started again; it had finished training"]


def test_a_worker_that_fails_while_others_look_at_the_last_model_is_not_waited_for(companies: Any) -> None:
    company: Company = companies(allreduce="servers")
    company.train()
    for who in (W0, W1):  # the last one has the last model
        company.say(who, control.Left(reason="steps"))
    company.settled()
    company.say(W0, control.Failed(cause="worker 0: a server shows no more", details="where"))
    ends_in_order(company, "steps", holder=1)
    told = [r.reason for r in company.ears.records if isinstance(r, MemberChange) and r.event == "lost"]
    assert told == ["worker 0: a server shows no more; it had finished training"]


@pytest.mark.parametrize("fails", [False, True])
def test_where_servers_have_the_last_model_no_single_worker_is_needed_for_it(companies: Any, fails: bool) -> None:
    company: Company = companies(allreduce="servers", model_on_servers=True)
    company.train()
    for who in (W0, W1):
        company.say(who, control.Left(reason="steps"))
        company.settled()
    if fails:
        company.say(W1, control.Failed(cause="worker 1: it left", details="where"))
    else:
        company.kill(W1)
    ends_in_order(company, "steps", holder=1, of=W0)
    told = [r.reason for r in company.ears.records if isinstance(r, MemberChange) and r.event == "lost"]
    assert [reason.removeprefix("worker 1: ") for reason in told] == ["it left; it had finished training"]


def test_the_last_worker_of_all_is_not_lost_in_silence(companies: Any) -> None:
    company: Company = companies(allreduce="servers", model_on_servers=True)
    company.train()
    for who in (W0, W1):
        company.say(who, control.Left(reason="steps"))
        company.settled()
    company.kill(W1)
    company.say(W0, control.Failed(cause="worker 0: a bug at the end", details="where"))
    assert company.told("failed") == (W0, "worker 0: a bug at the end", "where")


def test_the_failure_of_the_one_that_has_the_last_model_ends_the_run(companies: Any) -> None:
    company: Company = companies(allreduce="servers")
    company.train()
    for who in (W0, W1):
        company.say(who, control.Left(reason="steps"))
    company.settled()
    company.say(W1, control.Failed(cause="worker 1: the disk is full", details="where"))
    assert company.told("failed") == (W1, "worker 1: the disk is full", "where")


def test_one_whose_loop_hangs_is_asked_where_and_given_up_but_not_one_that_waits(companies: Any) -> None:
    company: Company = companies(servers=1, evaluator=False, allreduce="servers", stuck_after_s=0.6)
    company.train()
    hangs, told = dataclasses.replace(progress(samples=1), seconds_at_batch=1.0), []
    while not any(isinstance(message, control.WorkerLeft) for message in told):
        company.say(W1, progress(samples=1))  # it waits for worker 0, as the server does
        company.say(S0, control.Beat())
        with contextlib.suppress(PeerLost):
            company.say(W0, hangs)
        with contextlib.suppress(queue.Empty):
            told.append(company.heard[W1].delivered.get(timeout=0.1)[1].message)
    assert control.WorkerLeft(rank=0, lost=True) in told
    to_w0 = [company.hears(W0)]
    while to_w0[-1] != control.Explain():
        to_w0.append(company.hears(W0))
    company.settled()
    (why,) = [r.reason for r in company.ears.records if isinstance(r, MemberChange) and r.event == "lost"]
    assert why.startswith("alive, but no step for ")
    assert why.endswith("; its log shows where it is stuck; 1 of 2 continue")


class Back:
    """Worker 0 of a company of two, killed and in its second incarnation."""

    def __init__(self, company: Company) -> None:
        self.company = company
        company.train()
        company.say(W0, progress(samples=7))
        company.told("progressed")
        company.all_hear(control.Total, [W0, *(who for who in company.everybody if who == EVALUATOR)])
        company.kill(W0)
        for who in [*company.everybody[:1], W1]:
            assert company.hears(who) == control.WorkerLeft(rank=0, lost=True)
        self.hello()

    def hello(self, incarnation: int = 1, who: Party = W0) -> None:
        heard = self.company.heard[who] = Recorder()
        self.company.hub.transport(who, incarnation=incarnation).open(heard)
        self.company.say(
            who, control.Hello(address="hub:again", pid=2, host="here", device="cpu", incarnation=incarnation)
        )


def test_a_lost_worker_comes_back_once_all_know_of_it_and_goes_on_counting(companies: Any) -> None:
    company: Company = companies(allreduce="servers", evaluator=False)
    Back(company)
    roster = company.hears(W0)
    assert (roster.incarnations, roster.gone, roster.lost) == ((1, 0), (0,), (0,))
    company.say(W0, ready())
    came = control.WorkerJoined(rank=0, incarnation=1, view=3, address="hub:again", host="here")
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
    assert company.hears(W0) == control.Total(samples=12, exchanges=2)
    (back,) = [r for r in company.ears.records if isinstance(r, MemberChange) and r.event == "returned"]
    assert (back.reason, back.host) == ("incarnation 2; 2 of 2 train", "here")  # it may be elsewhere than before


def test_others_are_told_which_incarnation_has_left(companies: Any) -> None:
    company: Company = companies(allreduce="servers", evaluator=False)
    Back(company)
    company.hears(W0)
    company.say(W0, ready())
    for who in (S0, W1):
        assert company.hears(who).incarnation == 1
        company.say(who, control.Aware(view=3))
    company.settled()
    company.say(W0, control.Left(reason="steps"))
    assert company.hears(S0) == control.WorkerLeft(rank=0, incarnation=1)


def test_a_newcomer_knows_of_another_that_everybody_is_being_told_of(companies: Any) -> None:
    company: Company = companies(workers=3, allreduce="servers", evaluator=False)
    back = Back(company)
    company.kill(W1)
    company.settled()
    company.say(W0, ready())
    company.settled()
    back.hello(who=W1)
    roster = company.hears(W1)
    assert (roster.gone, roster.lost, roster.addresses["worker 0"]) == ((1,), (1,), "hub:again")


def test_of_two_newcomers_the_later_one_hears_where_the_other_is(companies: Any) -> None:
    company: Company = companies(workers=3, allreduce="servers", evaluator=False)
    back = Back(company)
    assert company.hears(W0).joining == (0,)
    company.kill(W1)
    company.settled()
    back.hello(who=W1)
    roster = company.hears(W1)
    assert (roster.gone, roster.joining, roster.incarnations) == ((0, 1), (0, 1), (1, 1, 0))
    assert roster.addresses["worker 0"] == "hub:again"


def test_one_who_is_lost_again_before_it_is_back_is_missed_by_nobody(companies: Any) -> None:
    company: Company = companies(allreduce="servers", evaluator=False)
    back = Back(company)
    assert isinstance(company.hears(W0), control.Roster)
    company.kill(W0)
    back.hello(incarnation=2)
    assert company.hears(W0).incarnations == (2, 0)
    company.settled()
    assert company.heard[S0].delivered.empty()
    lost = [r.reason for r in company.ears.records if isinstance(r, MemberChange) and r.event == "lost"]
    assert lost[1:] == ["it left before it had rejoined; 1 of 2 continue"]


def test_one_that_was_never_there_comes_as_one_that_was_lost_does(companies: Any) -> None:
    company: Company = companies(workers=3, not_started=(2,), allreduce="servers")
    w2 = worker(2)
    company.train()
    assert (company.plan.workers, len(company.plan.hosts), company.plan.seconds_per_step) == (3, 3, (0.5,) * 3)
    assert company.gone() == (2,)
    heard = company.heard[w2] = Recorder()
    company.hub.transport(w2, incarnation=1).open(heard)
    company.say(w2, control.Hello(address="hub:new", pid=2, host="there", device="cpu", incarnation=1))
    roster = company.hears(w2)
    assert (roster.gone, roster.lost, roster.incarnations) == ((2,), (2,), (0, 0, 1))
    company.say(w2, ready())
    came = control.WorkerJoined(rank=2, incarnation=1, view=2, address="hub:new", host="there")
    for who in company.everybody:
        assert company.hears(who) == came
        company.say(who, control.Aware(view=2))
    assert isinstance(company.hears(w2), control.Plan)
    go = company.hears(w2)
    assert (go.samples, go.steps) == (0, 0)
    told = [(r.party, r.reason) for r in company.ears.records if isinstance(r, MemberChange) and r.event == "returned"]
    assert told == [("worker 2", "its first incarnation; 3 of 3 train")]


def test_a_newcomer_with_another_model_is_not_let_in(companies: Any) -> None:
    company: Company = companies(allreduce="servers", evaluator=False)
    Back(company)
    company.hears(W0)
    company.say(W0, ready(fingerprint="another"))
    assert take(company.heard[W0].losses)[0] == COORDINATOR
    (_, why) = [r.reason for r in company.ears.records if isinstance(r, MemberChange) and r.event == "lost"]
    assert why.startswith("worker 0 trains another model than worker 0 ")


def test_one_who_comes_when_the_run_is_stopping_is_told_so(companies: Any) -> None:
    company: Company = companies(allreduce="servers", evaluator=False)
    company.train()
    company.kill(W0)
    company.coordinator.stop("enough")
    company.settled()
    heard = company.heard[W0] = Recorder()
    company.hub.transport(W0, incarnation=1).open(heard)
    company.say(W0, control.Hello(address="hub:again", pid=2, host="here", device="cpu", incarnation=1))
    assert company.hears(W0) == control.Stop(reason="enough")


@pytest.mark.parametrize("announced", [False, True])
def test_one_who_is_not_back_when_the_run_ends_does_not_take_part_any_more(companies: Any, announced: bool) -> None:
    company: Company = companies(allreduce="servers", evaluator=False)
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
    assert company.coordinator.phase is RunPhase.FINISHING
    company.kill(W0)
    for who in (S0, W1):
        company.say(who, control.Saved())
    assert company.told("finished") == "enough"
    events = [record.event for record in company.ears.records if isinstance(record, MemberChange)]
    assert events == ["joined"] * 3 + ["lost", "left"]


def test_fewer_workers_than_asked_for_end_the_run(companies: Any) -> None:
    company: Company = companies(workers=3, allreduce="servers", min_workers=2)
    company.train()
    company.kill(W0)
    company.settled()
    company.kill(W1)
    who, cause, _ = company.told("failed")
    assert who == W1
    assert cause == "lost worker 1: it left; fewer than --min-workers 2 would be left"


def test_the_last_worker_that_is_lost_ends_the_run(companies: Any) -> None:
    company: Company = companies(workers=1, allreduce="servers")
    company.train()
    company.kill(W0)
    assert company.told("failed") == (W0, "lost worker 0: it left", "")


def test_who_leaves_after_the_end_is_not_lost(companies: Any) -> None:
    company: Company = companies()
    company.train()
    company.coordinator.stop("enough")
    finish(company, "enough")
    for who in company.everybody:
        company.kill(who)
    company.settled()
    assert company.ears.told.empty()


def test_how_long_a_step_takes_is_known_from_those_of_this_run_alone(
    companies: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    company: Company = companies(servers=1, evaluator=False, allreduce="servers")
    company.train()
    told: list[Any] = []
    members = company.coordinator.machine.run.members
    monkeypatch.setattr(members, "progressed", lambda now, who, steps, **of: told.append((steps, of["step_s"])))
    counts = ProgressCounters()
    counts.resume(steps=100, samples=3200)
    for _ in range(3):
        company.say(W0, counts.progress(Times(), (0, 0), (0, 0), seconds_at_batch=1.0, seconds_in_loop=1.0))
        counts.add(32, 2.0)
    company.settled()
    assert told == [(0, 0.0), (1, 2.0), (2, 2.0)]


def test_only_a_worker_is_asked_where_its_loop_hangs(companies: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    company: Company = companies(servers=1, evaluator=False, allreduce="servers")
    company.train()
    monkeypatch.setattr(company.coordinator.machine.run.members, "half_stuck", lambda now: [S0, W0])
    assert company.hears(W0) == control.Explain()
    company.settled()
    with pytest.raises(queue.Empty):
        company.heard[S0].delivered.get_nowait()
