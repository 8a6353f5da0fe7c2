"""What a supervisor hears of the ends of processes: causes are types, whatever their texts say."""

from __future__ import annotations

import queue

from paceline.live import party
from paceline.live.net.inprocess_transport import Hub
from paceline.live.party import worker
from paceline.runtime.process_main import take_part
from paceline.runtime.spec.launcher import ProcessEnded
from paceline.runtime.spec.process_spec import ProcessSpec
from paceline.runtime.supervisor.events import EventQueue, StatusLine


def leaving(hub: Hub) -> str:
    """Returns the address of a coordinator that goes away when anybody says anything to it."""
    transport = hub.transport(party.COORDINATOR)

    class Handler:
        def __getattr__(self, name: str) -> object:
            return lambda *_, **__: transport.close()

    return str(transport.open(Handler()))  # type: ignore[arg-type]


def test_who_ends_because_the_coordinator_is_gone_says_so_by_type() -> None:
    hub = Hub()
    address = leaving(hub)
    spec = ProcessSpec(party="server 0", workers=1, servers=1, coordinator=address, token="")
    ended = take_part(spec, hub.transport(spec.who))
    assert (ended.who, ended.lost_coordinator) == (spec.who, True)
    assert "the coordinator is gone" in ended.why


def test_the_ends_of_processes_come_before_what_was_told_earlier() -> None:
    ended: queue.SimpleQueue[ProcessEnded] = queue.SimpleQueue()
    events = EventQueue(ended)
    events.put(StatusLine("earlier"))
    ended.put(ProcessEnded(who=worker(1), why=""))
    assert [events.next(0.0) for _ in range(3)] == [
        ProcessEnded(who=worker(1), why=""),
        StatusLine("earlier"),
        None,
    ]
