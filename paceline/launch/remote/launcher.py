"""Starts and ends the processes of a run on several hosts, each through its agent.

The launcher decides which host starts which party (`placement.py`) and remembers where each runs. A host is lost
when its stream ends, when it is silent for SILENCE_SECONDS, or for SILENT_SECONDS while a party there was declared
lost; all its parties then count as lost.

    a worker's host is lost        then
    patience_s is 0                its next incarnation starts on the living host with the fewest parties
    patience_s is above 0          it waits so long for the engine to bring the host's agent back (`rejoin`)

Agents speak on threads of their own; the supervisor's thread starts, kills and ends.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
import math
import queue
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from paceline import __version__
from paceline import config as configuration
from paceline.config import Config
from paceline.core.coordination.party import Party
from paceline.core.errors import ConfigError, PacelineError
from paceline.core.files.safe_path import safe_join
from paceline.launch.local.environment import Environment
from paceline.launch.local.launcher import LocalLauncher, prepare_seconds
from paceline.launch.local.script_launcher import ScriptLauncher
from paceline.launch.remote import agent_messages as messages
from paceline.launch.remote import message_stream
from paceline.launch.remote.agent_messages import Event
from paceline.launch.remote.message_stream import MessageStream
from paceline.launch.remote.placement import Placement
from paceline.live.addresses import is_loopback
from paceline.live.protocol import frames
from paceline.live.security.tls import file_of
from paceline.runtime.spec.launcher import ProcessEnded
from paceline.runtime.spec.process_spec import ProcessSpec

ANSWER_SECONDS = 30.0
"""Seconds for the answer to a request that takes no time by itself."""
OVER_SECONDS = 3.0
"""Seconds for an agent to report the end, beyond the time that its parties get."""


class RemoteHost:
    """Represents one host, by the stream of lines to its agent."""

    def __init__(self, name: str, lines: MessageStream[Event], *, why_gone: Callable[[], str] = lambda: "") -> None:
        """`why_gone` returns what is known of the reason, when the stream has ended."""
        self.name, self.address = name, ""
        self.lines, self._why_gone = lines, why_gone
        self._answers: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._events: Callable[[Event], None] = lambda event: None
        self._why = ""  # the host was lost, once that is known
        self.alive, self.leaving, self._doubted_at = True, False, math.inf
        self._beat = message_stream.Heartbeat(lines, self._give_up)
        threading.Thread(target=self._read, name=f"agent on {name}", daemon=True).start()

    def follow(self, events: Callable[[Event], None]) -> None:
        """Sets who is called with the output and the ends of parties, on the stream's reading thread."""
        self._events = events

    def ask(self, request: messages.Request) -> None:
        """Sends a request to the agent."""
        self.lines.say(request)

    def answer(self, seconds: float = ANSWER_SECONDS) -> Event:
        """Returns the answer to the last request. Raises ConfigError for a refusal, PacelineError after a timeout."""
        try:
            event = self._answers.get(timeout=seconds)
        except queue.Empty:
            raise PacelineError(f"waited {seconds:.0f} s for its agent") from None
        if isinstance(event, messages.AgentRefused):
            raise ConfigError(event.why)
        return event

    def doubt(self) -> None:
        """Takes the host for lost if it has been silent too: a party there was given up."""
        self._doubted_at = time.monotonic()
        self._give_up()

    def _give_up(self) -> None:
        """Closes the stream of a doubted host that is silent; one that was heard since is doubted no more."""
        if self.lines.heard_at > self._doubted_at:
            self._doubted_at = math.inf  # it is there
        elif self._doubted_at < math.inf and self.lines.silent:
            self._why = f"silent for {time.monotonic() - self.lines.heard_at:.1f} s"
            self.lines.close()

    def gone(self) -> str:
        """Returns why nothing is heard from it any more."""
        return f"host {self.name} is gone" + (f" ({self._why})" if self._why else "")

    def close(self) -> None:
        """Closes the stream: the agent ends what it has started, and itself."""
        self._beat.close()
        self.lines.close()

    def _read(self) -> None:
        """Reads what the agent says, on a thread: events go to the launcher, answers to whoever asked."""
        while (event := self.lines.hear()) is not None:
            if isinstance(
                event,
                messages.Said | messages.AgentProcessEnded | messages.RunOver | messages.Leaving,
            ):
                self.leaving |= isinstance(event, messages.Leaving)
                self._events(event)
            else:
                self._answers.put(event)
        self.alive = False
        self._why = self._why or self._why_gone()  # to ask takes seconds
        self._answers.put(messages.AgentRefused(why=self._why or "its agent has gone"))
        self._events(messages.RunOver())


class RemoteLauncher:
    """Launches the parties of one run, each on the host that the placement says; the evaluator runs on this one.

    `local` starts the evaluator, where the workers are a script in the same way: it is a `ScriptLauncher` then.
    """

    def __init__(
        self,
        hosts: Sequence[RemoteHost],
        placement: Placement,
        local: LocalLauncher | ScriptLauncher,
        *,
        scripts: bool,
        said: Callable[[str, str], None],
        patience_s: float = 0.0,
    ) -> None:
        """`hosts[k]` is host k of the placement. `scripts`: workers are somebody's own command, which `said` hears.

        patience_s: how long a worker whose host is lost waits for one in its place (`rejoin`) before it goes elsewhere.
        """
        self._hosts, self._placement, self._local = [*hosts], placement, local
        self._patience_s, self._config = patience_s, Config()
        self._waiting: dict[Party, tuple[ProcessSpec, threading.Timer]] = {}
        self._scripts, self._said = scripts, said
        self.ended: queue.SimpleQueue[ProcessEnded] = (
            local.ended
        )  # one queue for all, so that the first cause comes first
        self._taken: Callable[[], None] = lambda: None
        self._at: dict[str, RemoteHost] = {}  # parties that run
        self._out = ""
        self._change = threading.Condition()
        self._over: set[RemoteHost] = set()
        for host in hosts:
            host.follow(lambda event, host=host: self._heard(host, event))  # type: ignore[misc]

    # ---- a launcher ------------------------------------------------------------------------------------------
    def prepare(self, config: Config) -> int:
        """Loads the data on all hosts at once; returns the number of training samples.

        Raises ConfigError with everything that keeps hosts from taking part, such as data of another size.
        """
        self._config = config
        if self._scripts or isinstance(self._local, ScriptLauncher):
            return 1
        numbers = sorted(set(self._placement.workers))
        for number in numbers:
            self._hosts[number].ask(self._prepare_on(number))
        samples = self._local.prepare(config, ())
        problems = []
        for host in (self._hosts[number] for number in numbers):
            try:
                answer = host.answer(prepare_seconds(config))
            except PacelineError as error:
                problems.append((host.name, str(error)))
                continue
            if isinstance(answer, messages.AgentPrepared) and answer.train_samples != samples:
                problems.append((host.name, f"{answer.train_samples} training samples, and {samples} here"))
        raise_all(problems, "cannot take part")
        return samples

    def _prepare_on(self, number: int) -> messages.Prepare:
        """Returns the request by which host `number` gets ready: the configuration, and its workers."""
        placed = enumerate(zip(self._placement.workers, self._placement.slots, strict=True))
        workers = [(rank, slot) for rank, (host, slot) in placed if host == number]
        return messages.Prepare(config=configuration.to_dict(self._config), workers=workers)

    def start(self, spec: ProcessSpec) -> None:
        """Starts a party, or lets it wait for its host to come back."""
        if spec.who.kind == "evaluator":
            self._local.start(spec)
            return
        self._out = spec.config.run.out
        with self._change:
            lost = not self._hosts[self._placement.host_of(spec.who)].alive
            if waits := lost and spec.who.kind == "worker" and self._patience_s > 0:
                timer = threading.Timer(self._patience_s, self._start_waiting, [spec.who])
                timer.daemon = True
                self._waiting[spec.who] = (spec, timer)
                timer.start()
        if not waits:
            self._start(spec)

    def _start(self, spec: ProcessSpec) -> None:
        """Starts a party on its host, or on another one. Raises PacelineError if no host is left."""
        with self._change:
            host = self._host_for(spec.who)
            self._at[spec.party] = host
        slot = self._placement.slots[spec.who.index] if spec.who.kind == "worker" else -1
        neighbours = tuple(rank for rank, at in enumerate(self._placement.workers) if self._hosts[at] is host)
        there = dataclasses.replace(spec, bind=_bind(host.address, spec.bind), slot=slot, neighbours=neighbours)
        host.ask(messages.StartProcess(spec=there.to_json(), keys=keys_of(spec)))

    def _start_waiting(self, who: Party) -> None:
        """Starts a party that waits: on its host if that is back, or else on another one."""
        with self._change:
            waits = self._waiting.pop(who, None)
        if waits is not None:
            spec, timer = waits
            timer.cancel()  # the next incarnation that waits has time of its own
            try:
                self._start(spec)
            except PacelineError as error:
                self.ended.put(ProcessEnded(who=who, why=str(error)))

    def check(self, number: int) -> None:
        """Raises ConfigError where no agent has that number."""
        if not 0 <= number < len(self._hosts):
            raise ConfigError(f"its agent has number {number}, and this run has {len(self._hosts)} agents")

    def rejoin(self, number: int, host: RemoteHost) -> None:
        """Replaces host `number` by `host`, whose agent has begun. Raises PacelineError where it cannot take part."""
        if not self._scripts and number in self._placement.workers:
            host.ask(self._prepare_on(number))
            host.answer(prepare_seconds(self._config))
        self._hosts[number].close()  # its engine knows that it is gone; all that ran there is told as lost
        host.follow(lambda event: self._heard(host, event))
        with self._change:
            self._hosts[number] = host
            waiting = [who for who in self._waiting if self._placement.host_of(who) == number]
        for who in waiting:
            self._start_waiting(who)

    def _host_for(self, who: Party) -> RemoteHost:
        """Returns the host that the placement says; if that is gone, the living one that has the fewest parties."""
        placed = self._hosts[self._placement.host_of(who)]
        if placed.alive:
            return placed
        numbers = set(self._placement.workers) if who.kind == "worker" else range(len(self._hosts))
        living = [self._hosts[number] for number in numbers if self._hosts[number].alive]
        if not living:
            raise PacelineError(f"{who}: {placed.gone()}, and no other host can take it")
        load = Counter(self._at.values())
        return min(living, key=lambda host: load[host])

    def waits(self, who: Party) -> bool:
        """Returns True while a worker waits for its host to come back."""
        with self._change:
            return who in self._waiting

    def busy(self) -> bool:
        """Returns True while scripts go on after their training, or an end is not handled."""
        with self._change:
            working = self._scripts and any(party.startswith("worker") for party in self._at)
            return working or self._local.busy() or not self.ended.empty()

    def kill(self, who: Party) -> None:
        """Asks the agent to kill a party, and doubts its host."""
        if who.kind == "evaluator":
            self._local.kill(who)
        elif host := self._at.get(str(who)):
            host.ask(messages.Kill(party=str(who)))
            host.doubt()

    def end(self, seconds: float) -> None:
        """Ends all parties everywhere, and waits until the agents have reported it. Silent hosts are left out."""
        with self._change:
            for _, timer in self._waiting.values():
                timer.cancel()
            self._waiting.clear()
        there = [host for host in self._hosts if host.alive and not host.lines.silent]
        for host in there:
            host.ask(messages.End(seconds=seconds))
        self._local.end(seconds)
        deadline = time.monotonic() + seconds + OVER_SECONDS
        with self._change:
            self._change.wait_for(lambda: self._over.issuperset(there), max(0.0, deadline - time.monotonic()))

    def when_taken(self, taken: Callable[[], None]) -> None:
        """Calls `taken`, on any thread, once the engine has told every living host to go."""
        self._taken = taken
        self._look_who_stays()

    def _look_who_stays(self) -> None:
        """Calls `taken` if all living hosts are leaving."""
        there = [host for host in self._hosts if host.alive]
        if there and all(host.leaving for host in there):
            self._taken()

    # ---- what the agents say, each on its thread ---------------------------------------------------------
    def _heard(self, host: RemoteHost, event: Event) -> None:
        """Handles what an agent says, on its thread."""
        match event:
            case messages.Said(party=party, line=line):
                self._said(f"{party} ({host.name})", line)
            case messages.AgentProcessEnded(party=party, log=log):
                self._keep(party, log)
                why = event.why.replace("(pid ", f"({host.name}, pid ", 1)
                ended = ProcessEnded(
                    who=Party.parse(party),
                    why=why,
                    lost_coordinator=event.lost_coordinator,
                    other_version=event.other_version,
                )
                with self._change:  # told and taken away at once: `busy` sees either, and `start` comes after both
                    self.ended.put(ended)
                    self._at.pop(party, None)
            case messages.Leaving():
                self._look_who_stays()
            case messages.RunOver():
                if not host.alive:
                    self._lost(host)
                    self._look_who_stays()
                with self._change:
                    self._over.add(host)
                    self._change.notify_all()

    def _lost(self, host: RemoteHost) -> None:
        """Reports the end of all parties that ran on a lost host."""
        with self._change:
            if host not in self._at.values():
                return
        why = host.gone()
        with self._change:
            for party in [party for party, at in self._at.items() if at is host]:
                self.ended.put(ProcessEnded(who=Party.parse(party), why=f"{party} is lost: {why}"))
                del self._at[party]

    def _keep(self, party: str, log: str) -> None:
        """Writes the end of a party's log to the run's folder, where parties of this host have theirs."""
        if not log:
            return
        path = safe_join(self._out, "logs", f"{party.replace(' ', '-')}.log")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(log, encoding="utf-8")
        except OSError as error:
            print(f"paceline: {path}: {error.strerror}", file=sys.stderr)


def begin(
    hosts: Sequence[RemoteHost],
    placement: Placement,
    *,
    command: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    by_role: Environment | None = None,
    bind: str = "",
    first: int = 0,
) -> None:
    """Gets agents ready, of which the first is host `first`. Raises ConfigError with what all of them object to."""
    roles = {kind: dict(values) for kind, values in (by_role or {}).items()}
    for number, host in enumerate(hosts, first):
        own = list(command) if number in placement.workers else []  # servers are ours
        at = placement.hosts[number].address or bind
        host.ask(messages.BeginRun(environment=dict(environment or {}), by_role=roles, command=own, bind=at))
    problems = []
    for host in hosts:
        try:
            answer = host.answer()
            assert isinstance(answer, messages.Begun)
            host.address = answer.address
        except PacelineError as error:
            problems.append((host.name, str(error)))
    raise_all(problems, "cannot take part")


def raise_all(problems: Sequence[tuple[str, str]], what: str) -> None:
    """Raises ConfigError with all problems at once, by host, if there are any."""
    hosts: dict[str, list[str]] = {}
    for host, problem in problems:
        hosts.setdefault(problem, []).append(host)
    lines = [f"{', '.join(names)}: {problem}" for problem, names in hosts.items()]
    if len(lines) == 1:
        raise ConfigError(lines[0])
    if lines:
        raise ConfigError("\n  ".join([f"{len(problems)} hosts {what}:", *lines]))


def unlike(hello: messages.AgentHello, here: str = "here") -> Iterator[str]:
    """Yields in what a host differs from this process so that they cannot be in one run; `here`: where this process is.

    Versions of Python may differ: nothing of one interpreter is ever loaded into another.
    """
    torch = importlib.metadata.version("torch")
    if hello.paceline != __version__:
        yield f"has Paceline {hello.paceline}, and {__version__} is {here}; install the same"
    elif hello.protocol != frames.VERSION:
        yield f"speaks protocol version {hello.protocol}, and {frames.VERSION} is spoken {here}; install one Paceline"
    if hello.torch.partition("+")[0] != torch.partition("+")[0]:  # +cpu and +cu128 are alike
        yield f"has torch {hello.torch}, and {torch} is {here}; install the same"
    if hello.byte_order != sys.byteorder:
        yield f"is {hello.byte_order}-endian, and numbers are {sys.byteorder}-endian {here}; use machines of one kind"


def _bind(there: str, here: str) -> str:
    """Returns the address on which a party listens: that of its host, or ours where the host is reached by loopback."""
    return here if is_loopback(there) else there


def keys_of(spec: ProcessSpec) -> dict[str, str]:
    """Returns the files of the spec's credentials, by name; {} without TLS."""
    if not spec.credentials:
        return {}
    names = ("job", "authority.pem", file_of(spec.who))
    return {name: Path(spec.credentials, name).read_text(encoding="ascii") for name in names}
