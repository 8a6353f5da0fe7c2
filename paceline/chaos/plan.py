"""Draws from a seed which faults happen, when and to whom; the plan is printed before anything happens.

| kind | what is done |
|---|---|
| kill | SIGKILL to a worker |
| stop | SIGSTOP to a worker, SIGCONT some time later: sooner or later than silence counts as death |
| slow | a worker gets a fraction of its time, by turns of SIGSTOP and SIGCONT |
| partition | nothing passes between one party, worker or server, and all others, for as long |
| server | SIGKILL to a server |
| evaluator | SIGKILL to the evaluator |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from paceline.core.coordination import party
from paceline.core.coordination.party import Party
from paceline.core.errors import ConfigError
from paceline.core.registry import nearest

KINDS = ("kill", "stop", "slow", "partition", "server", "evaluator")
"""All kinds of faults, in the order in which tables list them."""
KILLS = ("kill", "server", "evaluator")
"""Kinds that are over at once: a process is killed."""
SHARES_OF_DEATH = (0.2, 0.6, 1.5)
"""How long stops and partitions last, in units of the silence that counts as death."""
SLOW_SECONDS = 3.0
"""Seconds for which a worker is slowed down."""
SLOWNESSES = (3, 10)
"""How many times slower a worker becomes; one of these is drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedFault:
    """Plans one fault, `at_s` seconds after training began.

    for_s: how long it lasts; 0 for a kill. times: how many times slower, of kind `slow`.
    """

    number: int
    at_s: float
    kind: str
    whom: Party
    for_s: float = 0.0
    times: int = 1

    def __str__(self) -> str:
        verb = "kill" if self.kind in KILLS else self.kind
        slower = f" {self.times} times" if self.kind == "slow" else ""
        length = f" for {self.for_s:.1f} s" if self.for_s else ""
        return f"{self.at_s:7.1f} s  {verb} {self.whom}{slower}{length}"


def kinds_of(text: str) -> tuple[str, ...]:
    """Returns the kinds in `kill,stop`. Raises ConfigError for what is none, and for one that comes twice."""
    words = [word.strip() for word in text.split(",")]
    for word in words:
        if word not in KINDS:
            raise ConfigError(f"--faults {text}: {word!r} is no fault{nearest(word, KINDS)}")
    if len(set(words)) != len(words):
        raise ConfigError(f"--faults {text}: name each fault once")
    return tuple(words)


def draw(
    seed: int, kinds: Sequence[str], *, count: int, every_s: float, workers: int, servers: int, dead_after_s: float
) -> list[PlannedFault]:
    """Returns `count` faults, one every `every_s` seconds. The same arguments give the same faults on every machine.

    dead_after_s: seconds of silence that count as death, by which stops and partitions are measured.
    """
    random = Random(f"chaos/{seed}")
    return [
        _fault(random, number, number * every_s, random.choice(kinds), workers, servers, dead_after_s)
        for number in range(1, count + 1)
    ]


def _fault(
    random: Random, number: int, at_s: float, kind: str, workers: int, servers: int, dead_after_s: float
) -> PlannedFault:
    """Draws one fault of `kind`: whom it hits, and for how long."""
    of_servers = [party.server(shard) for shard in range(servers)]
    of_workers = [party.worker(rank) for rank in range(workers)]
    others = {
        "server": of_servers,
        "partition": of_workers + of_servers,
        "evaluator": [party.EVALUATOR],
    }
    among = others.get(kind, of_workers)
    whom = random.choice(among)
    length = random.choice(SHARES_OF_DEATH) * dead_after_s
    lengths = {"stop": length, "partition": length, "slow": SLOW_SECONDS}
    times = random.choice(SLOWNESSES) if kind == "slow" else 1
    return PlannedFault(number=number, at_s=at_s, kind=kind, whom=whom, for_s=lengths.get(kind, 0.0), times=times)
