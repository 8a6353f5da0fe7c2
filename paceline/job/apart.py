"""The coordinator of a run as a process of its own, seen from the process of the command.

The command keeps the connections to all parties, and the lines (`paceline.job.link`): so the parties notice nothing
when the coordinator is lost, but that an answer comes later. What passes by it: vectors of snapshots, which the vault
asks for, and lines of the trace.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import queue
import signal
import socket
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from paceline import config as configuration
from paceline.config import Config
from paceline.core.errors import PeerLost, ProtocolError
from paceline.core.leases import Data
from paceline.core.trace import Applied, Membership, from_dict, to_row
from paceline.job.link import Link
from paceline.job.vault import Vault
from paceline.live import control, verbs
from paceline.live.control import Hello
from paceline.live.exhibits import Peek
from paceline.live.listener import Listener
from paceline.live.node import Node
from paceline.live.party import COORDINATOR, Party
from paceline.live.phases import Phase
from paceline.live.replica import alone, framed, unframed
from paceline.live.reports import line_of, records_of
from paceline.live.transport import Envelope, Kind, Transport

TICK_SECONDS = 0.1
ANSWER_SECONDS = 5.0  # besides --dead-after: within that a standby has taken its place
BRIEFLY_SECONDS = 1.0


class Apart:
    """What the conductor sees of it is what the coordinator has last told."""

    def __init__(
        self,
        link: Link,
        transport: Transport,
        node: Node,
        listener: Listener,
        vault: Vault,
        *,
        config: Config,
        train_samples: int,
        evaluator: bool,
        done: Data = (),
        behind: int = 0,
    ) -> None:
        self.node = node
        self._transport, self._listener, self._vault = transport, listener, vault
        self._link = link
        values = json.dumps(configuration.to_dict(config))  # which also writes names of files that are no UTF-8
        self._begin = [time.monotonic(), "begin", values, train_samples, evaluator, done, behind]
        self.phase, self.stopping, self.barred, self.length = Phase.GATHERING, False, frozenset[Party](), 0
        self._lives: dict[Party, int] = {}
        self._life, self._pid, self._lost_at = 0, 0, 0.0
        self._kept = False
        self._longest = 0
        self._numbers = itertools.count(1)
        self._answers: dict[int, queue.SimpleQueue[Any]] = {}
        self._patience_s, self._is_gone = config.cluster.dead_after + ANSWER_SECONDS, False

    # ---- for the conductor, from any thread --------------------------------------------------------------
    def open(self) -> str:
        """Begin; returns the address for the others."""
        self._transport.open(self)
        self._link.begin(self, self._begin)
        self._tick()
        return self._transport.address

    def kill(self) -> None:
        """Its present process."""
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def stop(self, reason: str) -> None:
        self._put("stop", reason)

    def ended(self, who: Party, why: str) -> None:
        """The process of `who` has."""
        self._put("lost", str(who), why)

    def life_of(self, who: Party) -> int:
        return self._life if who == COORDINATOR else self._lives.get(who, 0)

    def survives(self, who: Party) -> bool:
        return bool(self._ask("survives", str(who)))

    def why_last(self, who: Party) -> str:
        return self._ask("why_last", str(who)) or ""

    def missing(self) -> list[Party]:
        """For the last words of a run, which may not wait for long."""
        return [Party.parse(who) for who in self._ask("missing", "", BRIEFLY_SECONDS) or ()]

    def _ask(self, question: str, who: str, patience_s: float = math.inf) -> Any:
        """None where there is no answer within `patience_s`, or the coordinator is lost for good, and the run ends."""
        number, answer = next(self._numbers), queue.SimpleQueue[Any]()
        self._answers[number] = answer
        self._put("asked", number, question, who)
        try:
            return None if self._is_gone else answer.get(timeout=min(patience_s, self._patience_s))
        except queue.Empty:
            return None
        finally:
            del self._answers[number]

    def _put(self, what: str, *of: Any) -> None:
        self._link.put([time.monotonic(), what, *of])

    def _tick(self) -> None:
        if self._vault.available and not self._kept:
            self._kept = True
            self._put("kept")
        self._put("tick")
        self._transport.call_later(TICK_SECONDS, self._tick)

    # ---- what parties say, on the transport's thread -----------------------------------------------------
    def deliver(self, src: Party, envelope: Envelope) -> None:
        verbs.check(src, self.node.me, envelope)
        match envelope.message:
            case control.Records(lines=lines):
                self._records(src, lines)
            case Peek():
                self.node.deliver(src, envelope)
            case _ if envelope.kind == Kind.REPLY:
                self.node.deliver(src, envelope)
            case _:
                self._put("heard", str(src), framed(envelope))

    def _records(self, src: Party, lines: str) -> None:
        """To the listener at once; the coordinator needs to know of no more than the last updates."""
        newest: dict[int, Applied] = {}
        for record in records_of(lines):
            self._listener.recorded(record)
            if isinstance(record, Applied):
                newest[record.shard] = record
        if newest:
            self._put("records", str(src), b"\n".join(line_of(to_row(record)) for record in newest.values()).decode())
        else:
            self._put("heard", str(src), alone(control.Beat()))

    def room_for(
        self, src: Party, kind: Kind, id: int, cls: type, lengths: Sequence[int], shared: Sequence[Any]
    ) -> list[Any]:
        return self.node.room_for_look(src, kind, id, lengths, shared, longest=self._longest)

    def lost(self, src: Party, why: str) -> None:
        self.node.lost(src, why)
        self._put("lost", str(src), why)

    def failed(self, error: BaseException) -> None:
        self._listener.failed(COORDINATOR, str(error) or repr(error), "")

    # ---- what the link tells, on its thread --------------------------------------------------------------
    def said(self, of: list[Any]) -> None:
        if of[0] == "answered":
            if answer := self._answers.get(of[1]):
                answer.put(of[2])
        else:
            self._transport.call_later(0.0, partial(self._carry_out, *of))

    def gone(self, why: str) -> None:
        self._transport.call_later(0.0, partial(self._listener.failed, COORDINATOR, f"coordinator: {why}", ""))
        self._is_gone = True
        for answer in list(self._answers.values()):
            answer.put(None)

    def back(self, pid: int, lines: int) -> None:
        self._transport.call_later(0.0, partial(self._is_back, pid, lines, time.monotonic()))

    # ---- what the coordinator says, on the transport's thread --------------------------------------------
    def _carry_out(self, what: str, *of: Any) -> None:
        match what:
            case "send":
                with contextlib.suppress(PeerLost):  # told by `lost`
                    self._transport.send(Party.parse(of[0]), unframed(of[1]))
            case "facts":
                self.phase, self.stopping = Phase[of[0]], of[1]
                self.barred, self.length = frozenset(map(Party.parse, of[2])), of[3]
            case "life":
                self._lives[Party.parse(of[0])] = of[1]
            case "drop":
                self._drop(Party.parse(of[0]), of[1], of[2])
            case "refuses":
                self._vault.refuses(unframed(of[0]).message, of[1])
            case "begin":
                self._vault.begin(unframed(of[0]).message)
            case "hold":
                self._vault.hold()
            case "release":
                self._vault.release()
            case _:
                self._tell(what, *of)

    def _tell(self, what: str, *of: Any) -> None:
        match what:
            case "recorded":
                self._listener.recorded(from_dict(of[0]))
            case "progressed":
                self._listener.progressed(of[0], unframed(of[1]).message)
            case "joined":
                self._listener.joined(Party.parse(of[0]), unframed(of[1]).message)
            case "started":
                plan = unframed(of[1]).message
                self._longest = plan.layout.length
                self.node.start_clock(time.monotonic() - of[0])
                self._listener.started(plan)
            case "failed":
                self._listener.failed(Party.parse(of[0]), of[1], of[2])
            case "finished":
                self._listener.finished(of[0], of[1])
            case _:
                raise ProtocolError(f"{what} is nothing that a coordinator says")

    def _drop(self, who: Party, incarnation: int, why: str) -> None:
        """What the vault waits for from it will not come, nor what a server kept for a snapshot."""
        self.node.lost(who, why)
        if who.kind == "server":
            self.node.go_back(self.node.view, undone=False)
        self._transport.drop(who, incarnation, why)

    # ---- its own losses ----------------------------------------------------------------------------------
    def lost_process(self, why: str) -> None:
        self._transport.call_later(0.0, partial(self._is_lost, why, time.monotonic()))

    def _is_lost(self, why: str, moment: float) -> None:
        self._lost_at = moment
        self._record("lost", why)

    def _is_back(self, pid: int, lines: int, moment: float) -> None:
        if self._pid:
            self._life += 1
            after = f"after {moment - self._lost_at:.3f} s"
            self._record("replaced", f"pid {pid} has heard {lines} lines again and goes on {after}")
        self._pid = pid
        self._listener.joined(
            COORDINATOR, Hello(address="", pid=pid, host=socket.gethostname(), device="", incarnation=self._life)
        )

    def _record(self, event: str, reason: str) -> None:
        at = self.node.now() if self._longest else 0.0
        self._listener.recorded(Membership(at=at, party=str(COORDINATOR), event=event, reason=reason))
