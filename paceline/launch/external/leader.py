"""Leads a run whose processes somebody else starts: it assigns a part to each and notices who is lost.

    python -m paceline.launch.external.leader     the coordinator, and servers where nobody starts them

It opens a listener (`paceline.launch.remote.callback_listener`). A process that calls uses the protocol of an agent:

    caller     input                     then                                            next
    WAITING    a part is free            Start, with its specification                   STARTED
    STARTED    its stream ends           it is lost; its part is free again              LOST
    LOST       it is started again       it calls again and takes its part back          STARTED
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paceline import config as configuration
from paceline.config import Config
from paceline.core.coordination.party import Party
from paceline.core.errors import ConfigError, PacelineError
from paceline.launch.external.detect import PART, ExternalProcess, LeadRun
from paceline.launch.external.rendezvous import secret_of, ticket_of
from paceline.launch.local.interfaces import resolve
from paceline.launch.local.launcher import LocalHost, LocalLauncher
from paceline.launch.local.line_messages import LineDecoder
from paceline.launch.local.script_output import Losses
from paceline.launch.local.train import make_supervisor, new_folder
from paceline.launch.remote import agent_messages as messages
from paceline.launch.remote.agent_messages import Event
from paceline.launch.remote.callback_listener import CallbackListener, Caller
from paceline.launch.remote.launcher import keys_of, unlike
from paceline.launch.remote.message_stream import MessageStream, hang_up
from paceline.live.addresses import is_loopback
from paceline.observe.formatting.number_format import left_text
from paceline.observe.terminal.progress import ProgressDisplay, make_display
from paceline.runtime.spec.launcher import ProcessEnded
from paceline.runtime.spec.process_spec import ProcessSpec


class ExternalLauncher:
    """Assigns parts to processes that call by themselves; parties of other kinds are started by `local`."""

    def __init__(
        self,
        listener: CallbackListener,
        external: ExternalProcess,
        local: LocalLauncher | None,
        *,
        trains: bool = False,
    ) -> None:
        """`local` may be None where somebody starts servers, too, and there is no evaluator.

        trains: parties are `paceline train`'s own, and have its data; those of scripts are nobody else's affair.
        """
        self._trains = trains
        self._kinds = {"worker"} if external.own_servers else {"worker", "server"}
        self._local = local
        self.ended: queue.SimpleQueue[ProcessEnded] = local.ended if local else queue.SimpleQueue()
        self._lock = threading.Lock()
        self._callers: list[Caller] = []  # who has no place
        self._wanted: list[ProcessSpec] = []  # places that nobody has taken
        self._taken: dict[str, MessageStream[Event]] = {}
        self._listener = listener
        threading.Thread(target=self._receive, name="listener", daemon=True).start()

    def prepare(self, config: Config) -> int:
        """Returns the number of training samples, where the evaluator is ours and has them; otherwise 1."""
        return self._local.prepare(config, ()) if self._local and self._trains else 1

    def start(self, spec: ProcessSpec) -> None:
        """Wants a process for `spec`: the next caller of its kind gets it."""
        if spec.who.kind not in self._kinds:
            assert self._local is not None
            self._local.start(spec)
            return
        with self._lock:
            self._wanted.append(spec)
        self._match()

    def waits(self, who: Party) -> bool:
        """Returns True until somebody has called who takes the place of `who`."""
        with self._lock:
            return any(spec.who == who for spec in self._wanted)

    def busy(self) -> bool:
        """Returns False: what scripts do after their training is their own affair."""
        return False

    def kill(self, who: Party) -> None:
        """Hangs up on a process that was given up, which ends its part; others are killed."""
        if who.kind not in self._kinds and self._local:
            self._local.kill(who)
        elif lines := self._taken.get(str(who)):
            lines.close()

    def end(self, seconds: float) -> None:
        """Hangs up on everybody, callers without a part included."""
        self._listener.close()
        for lines in list(self._taken.values()):
            lines.close()
        with self._lock:
            while self._callers:
                hang_up(self._callers.pop()[0])
        if self._local:
            self._local.end(seconds)

    def _receive(self) -> None:
        """Takes callers, on a thread, and refuses those whose versions differ."""
        while (caller := self._listener.caller()) is not None:
            if problem := next(unlike(caller[1], f"at {socket.gethostname()}, which leads the run"), ""):
                self._refuse(caller, problem)
                continue
            spec = (caller[1].kind, caller[1].task)
            with self._lock:
                if caller[1].task >= 0:  # it was started again
                    self._forget([c for c in self._callers if (c[1].kind, c[1].task) == spec])
                self._callers.append(caller)
            self._match()

    def _refuse(self, caller: Caller, problem: str) -> None:
        """Refuses a caller: it is told the reason, and so is whoever looks here. Its part stays free for another
        one."""
        lines, hello = caller
        who = f"{hello.kind} {hello.task}" if hello.task >= 0 else hello.kind
        print(f"paceline: {who} ({hello.host}, pid {hello.pid}) is refused: it {problem}", file=sys.stderr, flush=True)
        lines.say(messages.AgentRefused(why=problem))
        threading.Thread(target=_drain, args=(lines,), name="refused", daemon=True).start()

    def _forget(self, callers: Sequence[Caller]) -> None:
        """Drops callers, and hangs up on them."""
        for caller in callers:
            self._callers.remove(caller)
            hang_up(caller[0])

    def _match(self) -> None:
        """Assigns parts to callers of their kind, and of their number if the callers name one."""
        with self._lock:
            if self._wanted:
                self._forget([caller for caller in self._callers if caller[0].hung_up])
            for spec in list(self._wanted):
                asked = (spec.who.kind, spec.who.index)
                ours = [c for c in self._callers if (c[1].kind, c[1].task) in (asked, (asked[0], -1))]
                if ours:
                    self._wanted.remove(spec)
                    self._callers.remove(ours[0])
                    self._spec(spec, *ours[0])

    def _spec(self, spec: ProcessSpec, lines: MessageStream[Event], caller: messages.AgentHello) -> None:
        """Assigns a part to a caller."""
        self._taken[spec.party] = lines
        lines.say(messages.StartProcess(spec=spec.to_json(), keys=keys_of(spec)))
        threading.Thread(target=self._follow, args=(spec, lines, caller), name=spec.party, daemon=True).start()

    def _follow(self, spec: ProcessSpec, lines: MessageStream[Event], caller: messages.AgentHello) -> None:
        """Reports the end of a process, when its stream ends."""
        who, how = f"{spec.party} ({caller.host}, pid {caller.pid})", "is gone"
        while (event := lines.hear()) is not None:
            if isinstance(event, messages.RunOver):
                how = f"ended with exit code {event.code}" if event.code else ""
        if self._taken.get(spec.party) is lines:
            del self._taken[spec.party]
        self.ended.put(ProcessEnded(who=spec.who, why=f"{who} {how}" if how else ""))


def _drain(lines: MessageStream[Event]) -> None:
    """Reads until the other side hangs up, or is silent for long: closing here could overtake what was said last."""
    while lines.hear() is not None:
        pass


def lead(
    external: ExternalProcess,
    values: Mapping[str, Mapping[str, Any]],
    *,
    trains: bool,
    run: Callable[[Any], int],
    display: ProgressDisplay,
) -> int:
    """Leads the run until it is over; `run` is called with the supervisor, and returns the exit code.

    `trains`: parties are `paceline train`'s own; otherwise scripts. Raises ConfigError.
    """
    values = with_numbers(external, values)
    cluster = {**values["cluster"], "bind": _listens_on(external)}
    own = {"scheme": "bsp"} if not trains else {}
    run_values = {**own, **values.get("run", {})}
    run_values["verbose"] = max(external.verbose, int(run_values.get("verbose", 0)))
    config = configuration.build({**values, "cluster": cluster, "run": run_values})
    config = new_folder(config, "" if trains else external.starter)
    secret = secret_of(external)
    port = 0 if not external.host else external.port
    with contextlib.ExitStack() as stack:
        listener = CallbackListener(config.cluster.bind, port, secret)
        stack.callback(listener.close)
        if not secret:
            path = ticket_of(external)
            path.unlink(missing_ok=True)
            listener.write_ticket(path)
            stack.callback(path.unlink, missing_ok=True)
        host = stack.enter_context(LocalHost()) if trains or external.own_servers else None
        launcher = ExternalLauncher(listener, external, host.launcher() if host else None, trains=trains)
        supervisor = make_supervisor(config, launcher, display, evaluator=trains, accept_joins=True)
        return run(supervisor)


def with_numbers(external: ExternalProcess, values: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """Returns `values` with as many workers and servers as were started, or are to be."""
    numbers = {"workers": external.workers, "servers": external.servers}
    if external.initial_workers:
        numbers["initial_workers"] = external.initial_workers
    return {**values, "cluster": {**values.get("cluster", {}), **numbers}}


def _listens_on(external: ExternalProcess) -> str:
    """Returns the address to listen on. Raises ConfigError for a host that other hosts could not call."""
    if not external.host:
        return "127.0.0.1"
    if external.interface:
        return resolve(external.interface, "the interface")
    try:
        address = str(socket.getaddrinfo(external.host, None, type=socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise ConfigError(f"{external.host}: {error.strerror}; name the host that leads the run") from None
    if is_loopback(address) and not is_loopback(external.host):
        raise ConfigError(
            f"{external.host} is {address} here, where no other host calls: name who leads by its address"
        )
    return address


def run_leader(external: ExternalProcess, values: Mapping[str, Any], *, trains: bool) -> int:
    """Leads a run in a process of its own, which ends in order at SIGTERM and SIGINT; returns the exit code."""

    def run(supervisor: Any) -> int:
        """Makes the run and prints what came of it; SIGTERM and Ctrl-C end it in order."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda got, _frame: supervisor.interrupt(signal.Signals(got).name))
        summary = supervisor.run()
        steps = ", ".join(f"{worker.rank}: {worker.steps}" for worker in summary.workers)
        part = f"{external.starter.replace('-', ' ')}: " if external.starter.startswith(PART) else ""
        print(f"{part}{summary.scheme}: {summary.seconds:.1f} s, {summary.samples} samples; steps by worker: {steps}")
        print(left_text(supervisor.left), flush=True)
        return 0

    display = make_display(sys.stderr) if trains else Losses()
    try:
        return lead(external, values, trains=trains, run=run, display=display)
    except PacelineError as error:
        print(f"paceline: {error}", file=sys.stderr, flush=True)
        return 2 if isinstance(error, ConfigError) else 1


def _main() -> int:
    """Reads what to lead from standard input, and leads it."""
    decoder: LineDecoder[LeadRun] = LineDecoder(LeadRun)
    decoder.feed(sys.stdin.buffer.read())
    run = decoder.take()
    return run_leader(run.process, run.values, trains=run.trains)


if __name__ == "__main__":
    code = _main()
    sys.stdout.flush()
    os._exit(code)
