"""What another party publishes can be read, also when the run is over."""

from __future__ import annotations

import pytest

from paceline.core.coordination import party
from paceline.core.coordination.party import server, worker
from paceline.core.effects import SERVERS
from paceline.core.errors import PeerLost, ProtocolError, TimedOut, Undone
from tests.live.fakes import take, vector
from tests.live.node_fixture import (
    SHARDS,
    TEN,
    WHOLE,
    WORK,
    Stage,
    asker,
    nothing,
    servers,
)


def test_a_look_at_another_party_works_also_when_the_run_is_over(stage: Stage) -> None:
    for shard, role in enumerate(servers(stage, nothing)):
        role.w = TEN[SHARDS[shard]]
    node, _ = asker(stage, WORK)
    assert node.read_state(SERVERS, "weights").tolist() == TEN.tolist()
    for each in stage.nodes.values():
        each.stop()
    assert node.read_state(SERVERS, "weights").tolist() == TEN.tolist()
    stage.nodes[server(0)].published["buffers"] = lambda _: vector(5)
    stage.node(party.EVALUATOR).place(None, WHOLE)
    assert stage.nodes[party.EVALUATOR].read_state(SERVERS, "buffers").tolist() == [5]


def test_what_a_party_does_not_show_cannot_be_looked_at(stage: Stage) -> None:
    servers(stage, nothing, count=1)
    node = stage.node(worker(0), timeout_s=0.05)
    node.place(None, WHOLE)
    with pytest.raises(TimedOut):
        node.read_state(SERVERS, "keys")
    refused = take(stage.behind[server(0)].failures)
    assert isinstance(refused, ProtocolError)
    assert str(refused) == "worker 0 asks server 0 for its keys, which it does not publish"


def test_a_worker_that_shows_a_model_of_a_wrong_length_has_none_and_gets_a_strike(stage: Stage) -> None:
    for rank, length in enumerate((10, 9)):
        stage.node(worker(rank)).published["weights"] = lambda _, length=length: (vector(*range(length)), 1.0)
    node = stage.node(party.EVALUATOR)
    node.place(None, WHOLE)
    assert len(node.read_model(0)[0]) == 10
    with pytest.raises(PeerLost, match=r"worker 1 shows nothing of use: .* is 9, which has to be 10"):
        node.read_model(1)
    assert node.message_checks.strikes == {worker(1): 1}


def test_whoever_asks_for_what_was_kept_and_is_no_more_is_told_so(stage: Stage) -> None:
    servers(stage, nothing, count=1)
    shows = stage.nodes[server(0)].published
    node = stage.node(worker(0))
    node.place(None, WHOLE)
    for name in ("/momentum", "snapshot/weights"):
        shows[name] = lambda _: vector(5)
        stage.nodes[server(0)].begin_server_view(stage.nodes[server(0)].server_view + 1)
        assert node.read_state(SERVERS, name).tolist() == [5]
        shows.withdraw([name])
        with pytest.raises(Undone, match="server 0 no longer publishes the state that it had kept"):
            node.read_state(SERVERS, name)
