"""Leases at the coordinator: who is told what, and what is refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from paceline.core.coordination import control_messages as control
from paceline.core.coordination.lifecycle import StopRule
from paceline.core.coordination.loop_messages import Draw
from paceline.core.coordination.party import Party, server, worker
from paceline.core.coordination.roster import ProgressTotals
from paceline.core.coordination.sample_leases import Leasing, Quotas
from paceline.core.errors import ProtocolError
from paceline.core.trace import Leased

WANT = control.Want(samples=8, size=4)


class Scene:
    def __init__(self) -> None:
        self.said: list[tuple[str, Any]] = []
        self.records: list[Leased] = []
        self.accused: list[tuple[Party, str]] = []
        self.here = {0, 1, 2}
        self.leasing = Leasing(self.tell, self.records.append, lambda: 1.5, (), self.accuse, lambda: self.here)

    def accuse(self, who: Party, why: str, *, at_once: bool = False) -> None:
        self.accused.append((who, why))

    def tell(self, to: Iterable[Party], message: Any) -> None:
        self.said += [(str(who), message) for who in to]

    def settled(self, rank: int, fate: str, start: int, stop: int) -> None:
        self.leasing.heard(server(0), 0, control.SamplesResolved(contributions=((rank, fate, ((0, start, stop),)),)))


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_who_wants_samples_is_told_which(scene: Scene) -> None:
    scene.leasing.heard(worker(1), 0, WANT)
    scene.leasing.heard(worker(0), 0, WANT)
    assert scene.said == [
        ("worker 1", control.Lease(epoch=0, start=0, stop=4)),
        ("worker 0", control.Lease(epoch=0, start=4, stop=8)),
    ]


def test_an_epoch_is_over_when_servers_have_told_of_all_of_it(scene: Scene) -> None:
    for _ in range(2):
        scene.leasing.heard(worker(0), 0, WANT)
    scene.settled(0, "applied", 0, 4)
    assert (scene.leasing.epochs, scene.records) == (0, [])
    assert not scene.leasing.reached(StopRule(samples=8))
    scene.settled(0, "applied", 4, 8)
    assert scene.leasing.reached(StopRule(samples=8))
    assert scene.leasing.reached(StopRule(epochs=1.0))
    assert not scene.leasing.reached(StopRule(epochs=1.5))
    assert [(record.at, record.epochs, record.done) for record in scene.records] == [(1.5, 1, 8)]


def test_the_first_server_is_asked_for_what_a_lost_worker_left_and_the_rest_goes_to_others(scene: Scene) -> None:
    scene.leasing.heard(worker(0), 0, WANT)
    scene.leasing.gone(0, 0, ask=True)
    fence = ("server 0", control.Fence(rank=0, incarnation=0))
    assert scene.said[1:] == [fence]
    scene.leasing.servers_are_back({1: 0})  # the server that was asked may be gone
    assert scene.said[2:] == [fence]
    scene.leasing.heard(server(0), 0, control.Fenced(rank=0, incarnation=0, pending=((0, 0, 1),)))
    scene.leasing.heard(worker(1), 0, WANT)
    assert scene.said[3:] == [("worker 1", control.Lease(epoch=0, start=1, stop=4))]


def test_a_first_server_that_is_being_restored_is_asked_when_it_is_back(scene: Scene) -> None:
    scene.leasing.heard(worker(0), 0, WANT)
    scene.leasing.gone(0, 0, ask=False)
    assert [whom for whom, _ in scene.said] == ["worker 0"]
    scene.leasing.servers_are_back({1: 0})
    assert scene.said[1:] == [("server 0", control.Fence(rank=0, incarnation=0))]


def test_one_that_had_nothing_left_is_asked_for_by_nobody(scene: Scene) -> None:
    scene.leasing.gone(0, 0, ask=True)
    scene.leasing.heard(worker(0), 0, WANT)
    scene.settled(0, "applied", 0, 4)
    scene.leasing.gone(0, 0, ask=True)
    assert [whom for whom, _ in scene.said] == ["worker 0"]


def test_samples_that_nobody_was_given_are_the_claim_of_the_worker_not_of_the_server_that_tells(scene: Scene) -> None:
    scene.leasing.heard(worker(0), 0, WANT)
    false, true = (1, "applied", ((3, 0, 1),)), (0, "applied", ((0, 0, 4),))
    scene.leasing.heard(server(0), 0, control.SamplesResolved(contributions=(false, true)))
    ((who, why),) = scene.accused
    assert who == worker(1)
    assert "were given to nobody" in why
    scene.leasing.heard(server(0), 0, control.Restored(done=((3, 0, 1), (0, 0, 4))))  # nor here: it has kept both
    scene.leasing.record()
    assert scene.records[-1].done == 4


def test_without_leases_the_coordinator_does_not_end_a_run_by_epochs(scene: Scene) -> None:
    assert not scene.leasing.reached(StopRule(samples=8))
    scene.leasing.record()
    assert scene.records == []


@pytest.mark.parametrize(
    ("src", "message", "why"),
    [
        (
            server(1),
            control.SamplesResolved(contributions=()),
            "sent SamplesResolved, which only the first server may send",
        ),
    ],
)
def test_what_cannot_be_is_refused(scene: Scene, src: Party, message: Any, why: str) -> None:
    scene.leasing.heard(worker(0), 0, WANT)
    with pytest.raises(ProtocolError, match=why):
        scene.leasing.heard(src, 0, message)


def test_leases_of_nothing_are_refused(scene: Scene) -> None:
    with pytest.raises(ProtocolError, match="both must be 1 or more"):
        scene.leasing.heard(worker(0), 0, control.Want(samples=0, size=4))


def quotas_of(workers: int, rule: StopRule) -> Quotas:
    return Quotas(rule, ProgressTotals(), lambda: set(range(workers)))


def test_quotas_end_after_epochs_of_a_length_that_the_workers_know() -> None:
    quotas = quotas_of(2, StopRule(samples=100, epochs=1.5))
    ask = control.Ask(samples=1000, batch=10, epoch=40)
    given = [quotas.quota(rank, ask) for rank in (0, 1) * 10]
    assert sum(given) == 60
    quotas.quota(2, control.Ask(samples=1000, batch=10, epoch=39))
    assert quotas.take_refused() == [(2, "worker 2 counts epochs of 39 samples, others of 40")]


@pytest.mark.parametrize("lie", [1, 10**6])
@pytest.mark.parametrize("liar", [0, 2])
def test_one_worker_that_lies_about_an_epoch_ends_and_prolongs_no_run(lie: int, liar: int) -> None:
    quotas = quotas_of(3, StopRule(epochs=1.5))
    quotas.quota(liar, control.Ask(samples=10, batch=10, epoch=lie))
    given = [quotas.quota(rank, control.Ask(samples=10, batch=10, epoch=40)) for rank in {0, 1, 2} - {liar}]
    assert quotas.take_refused() == [(liar, f"worker {liar} counts epochs of {lie} samples, others of 40")]
    given += [quotas.quota(1, control.Ask(samples=10, batch=10, epoch=40)) for _ in range(10)]
    assert all(given[:2])
    assert sum(given) == 60
    assert quotas.take_refused() == []
    assert quotas.quota(liar, control.Ask(samples=10, batch=10, epoch=10**6)) == 0, "it prolongs nothing where it stays"


def test_of_two_workers_the_first_is_believed() -> None:
    quotas = quotas_of(2, StopRule(epochs=1.5))
    for rank, epoch in ((1, 10**6), (0, 40)):
        quotas.quota(rank, control.Ask(samples=10, batch=10, epoch=epoch))
    assert [rank for rank, _ in quotas.take_refused()] == [1]


@pytest.mark.parametrize("lie", [1, 10**6])
def test_one_worker_that_lies_about_a_data_set_changes_no_queue_of_the_others(lie: int) -> None:
    quotas = quotas_of(3, StopRule(epochs=1.0))

    def draw(rank: int, samples: int) -> tuple[int, int]:
        drawn = quotas.draw(rank, Draw(stream=0, samples=samples, epochs=0, wanted=10, batch=10, trained=0))
        return drawn.start, drawn.stop

    draw(2, lie)
    assert draw(0, 40) == (0, 10)
    assert quotas.take_refused() == [], "one against one"
    assert draw(1, 40) == (10, 20)
    ((rank, why),) = quotas.take_refused()
    assert (rank, why[:50]) == (2, f"worker 2 shares a data set of {lie} samples with others"[:50])
    assert [draw(0, 40), draw(1, 40), draw(1, 40)] == [(20, 30), (30, 40), (0, 0)]


def test_the_first_to_want_leases_that_most_do_not_want_is_found_out_and_nobody_else(scene: Scene) -> None:
    scene.leasing.heard(worker(2), 0, control.Want(samples=9, size=9))
    scene.leasing.heard(worker(0), 0, WANT)
    assert [whom for whom, _ in scene.said] == ["worker 2"], "one against one"
    scene.leasing.heard(worker(1), 0, WANT)
    assert scene.said[1:] == [
        ("worker 0", control.Lease(epoch=0, start=0, stop=4)),
        ("worker 1", control.Lease(epoch=0, start=4, stop=8)),
    ]
    assert scene.accused == [(worker(2), "wants leases of 9 samples by 9, others of 8 samples by 4")]


def test_nobody_waits_for_a_lost_worker_to_want_leases(scene: Scene) -> None:
    scene.leasing.heard(worker(2), 0, control.Want(samples=9, size=9))
    scene.leasing.heard(worker(0), 0, WANT)
    scene.here -= {1, 2}
    scene.leasing.gone(2, 0, ask=True)
    assert scene.said[-1] == ("worker 0", control.Lease(epoch=0, start=0, stop=4))
