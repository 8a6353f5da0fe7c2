"""A coordinator made of lines: the same ones give the same coordinator, whenever they are heard."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from paceline.core.collective import Choice
from paceline.core.coordination.lifecycle import RunPhase, RunRules, RunSize
from paceline.core.coordination.server_recovery import Snapshots
from paceline.core.effects import Reply
from paceline.core.message import message
from paceline.core.role import Role
from paceline.core.sharding import lay_out
from paceline.core.trace import Applied, to_row
from paceline.live.coordinator.coordinator import Coordinator
from paceline.live.coordinator.executor import CoordinatorListener
from paceline.live.coordinator.planning import RunChoices
from paceline.live.coordinator.replayable import ReplayableCoordinator, alone, framed, unframed
from paceline.live.node.node import Node
from paceline.live.party import Party, server, worker
from paceline.live.protocol import control_messages as control
from paceline.live.protocol.transport import Envelope, Kind, Transport
from tests.live.scripted_parties import progress, ready

W0, W1, S0 = worker(0), worker(1), server(0)
EVERYBODY = (S0, W0, W1)


@message("test_replica.Count")
class Count:
    n: int


class Tally(Role):
    """Counts what it is asked."""

    asked = 0

    def on(self, now: float, src: int, message: Any) -> Iterator[Reply]:
        self.asked += message.n
        yield Reply(src, Count(n=self.asked))


class Keeping:
    copies = False

    def refuses(self, ready: control.Ready, servers: int) -> str:
        return ""


def replica() -> ReplayableCoordinator:
    def make(transport: Transport, node: Node, listener: CoordinatorListener, snapshots: Snapshots) -> Coordinator:
        return Coordinator(
            transport,
            node,
            listener,
            RunSize(workers=2, servers=1),
            RunChoices(
                make_role=lambda plan, place: Tally(None, place),
                lay_out=lambda ready, hellos: (lay_out(ready[0].length, len(hellos), 4), "a reason"),
                choose_allreduce=lambda ready, hellos, servers: Choice("servers", ""),
            ),
            RunRules(dead_after_s=5.0),
            snapshots,
        )

    return ReplayableCoordinator(make, Keeping())


def heard(at: float, src: Party, message: Any) -> list[Any]:
    return [at, "heard", str(src), alone(message)]


def upbringing() -> list[list[Any]]:
    """Everything up to the first step."""
    lines = [
        heard(1.0, who, control.Hello(address=f"hub:{who}", pid=1, host="here", device="cpu")) for who in EVERYBODY
    ]
    lines += [heard(2.0, who, ready()) for who in (W0, W1)]
    return lines + [heard(3.0, who, control.Prepared()) for who in EVERYBODY]


def training() -> list[list[Any]]:
    """Steps, a question for the box, updates, and one who falls silent."""
    applied = Applied(at=1.0, shard=0, ranks=(0,), version=7, staleness=0, weight=1.0, samples=8)
    question = framed(Envelope(Kind.CALL, Count(n=3), 5))
    lines: list[list[Any]] = [[3.5, "kept"], [3.5, "records", "server 0", json.dumps(to_row(applied))]]
    for k in range(40):
        at = 4.0 + 0.25 * k
        lines += [heard(at, W0, progress(8 * k)), heard(at, S0, control.Beat()), [at, "tick"]]
    lines += [[15.0, "heard", "worker 0", question], [15.0, "asked", 1, "survives", "worker 0"]]
    return lines


def said_to(replica: ReplayableCoordinator, lines: list[list[Any]]) -> list[list[Any]]:
    return [said for line in lines for said in replica.hear(line)]


def test_the_same_lines_give_the_same_coordinator_that_says_the_same() -> None:
    lines = upbringing() + training()
    one, other = replica(), replica()
    said = said_to(one, lines)
    assert said == said_to(other, lines)
    assert one.coordinator.phase is other.coordinator.phase is RunPhase.TRAINING
    assert [what for what, *_ in said if what in ("started", "begin", "drop", "answered")] == [
        *("started", "begin", "drop", "answered")
    ]


def test_time_is_that_of_the_lines_so_that_only_silence_in_them_counts() -> None:
    of = replica()
    said_to(of, upbringing())
    said = said_to(of, training())
    lost = [what for what in said if what[0] == "recorded" and what[1].get("event") == "lost"]
    assert [(record["party"], record["at"]) for _, record in lost] == [("worker 1", 5.25)]
    assert "silent for 5.2 s" in lost[0][1]["reason"]
    assert ["incarnation", "worker 1", 0] in said


def test_what_has_been_slept_through_is_held_against_nobody() -> None:
    of = replica()
    said_to(of, [*upbringing(), [3.25, "tick"], [3600.0, "tick"], [3600.25, "tick"]])
    assert of.coordinator.survives(W0)
    assert of.coordinator.survives(W1)
    assert not any(of.coordinator.missing())


def test_the_box_of_a_scheme_answers_as_elsewhere() -> None:
    of = replica()
    said_to(of, upbringing())
    for asked, counted in ((2, 2), (3, 5)):
        what, to, frame = of.hear([4.0, "heard", "worker 0", framed(Envelope(Kind.CALL, Count(n=asked), 5))])[0]
        assert (what, to, unframed(frame)) == ("send", "worker 0", Envelope(Kind.REPLY, Count(n=counted), 5))


def test_what_breaks_the_rules_ends_that_connection_and_not_the_run() -> None:
    of = replica()
    said_to(of, upbringing())
    said = of.hear([4.0, "heard", "worker 0", framed(Envelope(Kind.CALL, control.Stop(reason=""), 5))])
    assert ["drop", "worker 0", 0] in [one[:3] for one in said]
    assert of.coordinator.banned == {worker(0)}
    assert of.coordinator.phase is RunPhase.TRAINING


def test_what_others_look_at_is_told_before_what_came_of_it() -> None:
    of = replica()
    said = said_to(of, upbringing())
    started = next(k for k, (what, *_) in enumerate(said) if what == "started")
    assert said[:started].count(["facts", "TRAINING", False, [], of.coordinator.length]) == 1
    stopped = of.hear([5.0, "stop", "enough"])
    assert stopped[0] == ["facts", "TRAINING", True, [], of.coordinator.length]
    told = [(to, unframed(frame).message) for what, to, frame in (s for s in stopped if s[0] == "send")]
    assert told == [("worker 0", control.Stop(reason="enough")), ("worker 1", control.Stop(reason="enough"))]


def test_a_frame_is_read_as_it_was_written() -> None:
    envelope = Envelope(Kind.CALL, control.Aware(view=3), 7, 2, 4)
    assert unframed(framed(envelope)) == envelope
