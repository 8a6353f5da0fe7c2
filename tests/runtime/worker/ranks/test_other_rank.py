"""What another rank does with single orders; whole runs are in `test_first_rank.py`."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
import torch
from torch import nn

from paceline.core.errors import PeerLost
from paceline.runtime.worker.ranks.local_group import LocalGroup
from paceline.runtime.worker.ranks.other_rank import Obedience, ignore_sigterm
from tests.runtime.worker.ranks.rank_threads import DistributedDataParallel, on_ranks, ranks_of


def obeying(first: Any) -> Any:
    """What the other of two ranks has after it obeyed `first(link)`: the order that ended it, and its model."""

    def work(link: LocalGroup) -> Any:
        torch.manual_seed(1)
        model = DistributedDataParallel(nn.Linear(2, 1, bias=False), link)
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
        ranks = ranks_of(link, model, optimizer, (0, 1))
        if link.rank == 0:
            return first(link)
        for p in model.parameters():
            p.grad = torch.ones_like(p)
        order = Obedience(ranks).until("closed")
        return order, model.module.weight, optimizer

    return on_ranks(2, work)


def test_it_takes_weights_makes_a_step_and_drops_its_gradients() -> None:
    def first(link: LocalGroup) -> None:
        link.order("take", kind="weights", same=True)
        link.deliver_same(torch.tensor([5.0, 6.0]))
        link.order("step")
        link.order("zero_grad")
        link.order("closed")

    _, (order, weight, optimizer) = obeying(first)
    assert order == {"act": "closed"}
    assert weight.tolist() == [[4.0, 5.0]]
    assert weight.grad is None
    assert optimizer.state[weight]["momentum_buffer"].tolist() == [[1.0, 1.0]]


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs memfd")
def test_it_reads_weights_from_the_memory_of_all_ranks() -> None:
    def first(link: LocalGroup) -> Any:
        memory = link.share(2)
        assert memory is not None
        memory.copy_(torch.tensor([5.0, 6.0]))
        link.order("read")
        link.settled()
        memory.zero_()
        link.order("write", kind="weights")
        link.settled()
        link.order("closed")
        return memory.tolist()

    memory, (_, weight, _) = obeying(first)
    assert weight.tolist() == [[5.0, 6.0]]
    assert memory == [0.0, 0.0], "of replicas the first rank has all itself, so no other one owns a block"


def test_it_forgets_the_state_of_its_optimizer() -> None:
    def first(link: LocalGroup) -> None:
        for act in ("step", "reset", "closed"):
            link.order(act)

    _, (_, _, optimizer) = obeying(first)
    assert not optimizer.state


def test_it_clips_and_sends_its_gradient_where_it_owns_it() -> None:
    def first(link: LocalGroup) -> Any:
        link.order("clip", norm=0.5)
        link.order("is_zero")
        found = link.collect([1], torch.float32)[0].tolist()
        link.order("closed")
        return found

    zero, (_, weight, _) = obeying(first)
    assert zero == [0.0]
    assert float(weight.grad.norm()) == pytest.approx(0.5, rel=1e-3)


def test_an_error_of_the_first_rank_is_its_own_end() -> None:
    with pytest.raises(PeerLost, match="the first rank of this worker has failed: no luck"):
        obeying(lambda link: link.order("failed", why="no luck"))


def test_it_ends_where_the_first_rank_goes_on_alone() -> None:
    with pytest.raises(SystemExit) as ended:
        obeying(lambda link: link.dismiss())
    assert ended.value.code == 0


def test_the_state_of_its_optimizer_is_sent_and_replaced() -> None:
    def first(link: LocalGroup) -> list[list[float]]:
        link.order("step")
        link.order("give_state", names=["momentum_buffer"])
        found = link.collect([0], torch.float32)  # replicas: the first rank has it itself
        link.order("take_state", numbers={"of 0/momentum_buffer/vector/float32": 1.0}, names=["momentum_buffer"])
        link.deliver([torch.tensor([3.0, 4.0])])
        link.order("closed")
        return [v.tolist() for v in found]

    given, (_, weight, optimizer) = obeying(first)
    assert given == [[]]
    assert optimizer.state[weight]["momentum_buffer"].tolist() == [[3.0, 4.0]]


def test_an_order_at_the_wrong_time_is_an_error() -> None:
    with pytest.raises(ValueError, match="order 'shown' is not expected here: all ranks have to call the same"):
        obeying(lambda link: link.order("shown"))


def test_sigterm_is_the_first_ranks_affair_unless_the_program_has_a_handler() -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        assert ignore_sigterm()
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        signal.signal(signal.SIGTERM, lambda *_: None)
        assert not ignore_sigterm()
    finally:
        signal.signal(signal.SIGTERM, before)
