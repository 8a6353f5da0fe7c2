"""Writes docs/schemes: a page and a figure for every scheme, and their index. `make pages` runs it.

The text comes from the docstring of the scheme's file and from what the scheme declares, so a page is never edited;
the figure is a simulation in which nothing is trained. With names as arguments only those are made.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

from paceline.cli.support import scheme_catalogue
from paceline.core.effects import Effect, Reply, Tell
from paceline.core.role import Role
from paceline.core.scheme import Scheme, lookup, make, names
from paceline.core.trace import Record
from paceline.core.vector import Ghost
from paceline.observe.plots import style
from paceline.observe.plots.timeline import Message, timeline_figure
from paceline.sim import LocalSteps, Simulation
from paceline.sim.cluster.model import Cluster, Device, Host

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "schemes"
MADE_BY = "make pages"

SLOWDOWN = (1, 1, 2, 4)
STEP_S = 0.4
SHOWN_S = 10.0
MODEL = 12_500_000
"""Parameters: 50 MB, which take 40 ms through a card of 10 Gbit/s."""

COLOURS = 64

SHORTER: dict[str, dict[str, Any]] = {
    "asyncdiloco": {"h": 4},
    "decoupled": {"h": 8, "fragments": 2},
    "diloco": {"h": 4},
    "dssp": {"low": 1, "high": 4},
    "eamsgd": {"tau": 2},
    "easgd": {"tau": 2},
    "gosgd": {"p": 0.3},
    "halos": {"h": 2, "k": 2},
    "hybrid": {"phases": "bsp until 3 steps; esync"},
    "localsgd": {"tau": 2},
    "muloco": {"h": 4},
    "noloco": {"h": 4},
    "postlocal": {"tau": 2, "switch": "2 steps"},
    "prague": {"c_thres": 1},
    "slowmo": {"tau": 2},
    "sparseloco": {"h": 4},
    "ssp": {"staleness": 1},
    "tiers": {"outer": "asyncdiloco(h=3)"},
}
"""Parameters of the figures, where the defaults are for longer runs than ten seconds."""


# ---- the figure --------------------------------------------------------------------------------------------------
def cluster(servers: int) -> Cluster:
    hosts = [Host(name=f"worker-{rank}", devices=(Device(factor=f),)) for rank, f in enumerate(SLOWDOWN)]
    return Cluster(hosts=(*hosts, *[Host(name="server", servers=1)] * servers), step_s=STEP_S)


def servers_of(scheme: Scheme) -> int:
    return 0 if scheme.needs_peers and scheme.server(1) is None else 1


class Post:
    """Notes what workers tell one another: when it was sent and when it arrived, pair by pair in the same order."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.under_way: dict[tuple[int, int], list[float]] = {}
        self.messages: list[Message] = []
        for party in sim.world.workers:
            party.on = self.hearing(party.role, party.on)
            party.role.run = self.watched(party.role, party.role.run)  # type: ignore[method-assign]
            sim.restart(party.me)

    def sends(self, role: Role, effect: Effect) -> None:
        if isinstance(effect, Tell) and isinstance(effect.to, int):
            self.under_way.setdefault((role.me, effect.to), []).append(self.sim.now)

    def watched(self, role: Role, run: Callable[[], Generator[Effect, Any, None]]) -> Any:
        def running() -> Generator[Effect, Any, None]:
            box, value = run(), None
            while True:
                try:
                    effect = box.send(value)
                except StopIteration:
                    return
                self.sends(role, effect)
                value = yield effect

        return running

    def hearing(self, role: Role, on: Callable[[float, int, Any], Iterator[Tell | Reply]]) -> Any:
        def hear(now: float, src: int, message: Any) -> Iterator[Tell | Reply]:
            if self.under_way.get((src, role.me)):
                self.messages.append(Message(src, role.me, self.under_way[src, role.me].pop(0), self.sim.now))
            for effect in on(now, src, message):
                self.sends(role, effect)
                yield effect

        return hear


def figure(name: str) -> Any:
    """Who computes, waits and communicates in the first seconds, and how stale each update is."""
    scheme = make(name, SHORTER.get(name, {}))
    records: list[Record] = []
    work = LocalSteps(lambda rank, rng: STEP_S, samples=lambda rank: 32)
    sim = Simulation(scheme, Ghost(MODEL), work, cluster=cluster(servers_of(scheme)), seed=1, trace=records.append)
    post = Post(sim)
    sim.run(until=3 * SHOWN_S)
    workers = [f"worker {rank}  ×{factor}" for rank, factor in enumerate(SLOWDOWN)]
    note = ", ".join(f"{key} = {value}" for key, value in SHORTER.get(name, {}).items())
    return timeline_figure(name, note or "parameters by default", records, workers, SHOWN_S, post.messages)


def draw(name: str) -> None:
    from PIL import Image

    path = FOLDER / f"{name}.png"
    style.save(figure(name), path)
    with Image.open(path) as image:  # a picture of few colours is a third as large with a palette of its own
        image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)


def command(name: str) -> str:
    """What simulates the same, with all that a run leaves."""
    scheme = lookup(name)
    own = [f"--{name}.{key.replace('_', '-')} {quoted(value)}" for key, value in SHORTER.get(name, {}).items()]
    servers = servers_of(scheme())
    cluster = f"--servers {servers} --slowdown {','.join(map(str, SLOWDOWN))} --step-ms {STEP_S * 1000:g}"
    return " ".join(
        [f"paceline simulate --scheme {name}", *own, cluster, f"--parameters {MODEL} --seconds {SHOWN_S:g}"]
    )


def quoted(value: Any) -> str:
    return f'"{value}"' if any(sign in str(value) for sign in " ()") else str(value)


# ---- the page ----------------------------------------------------------------------------------------------------
def page(name: str) -> str:
    paper = lookup(name).paper
    link = f"[{paper.short()}]({paper.url})" if paper.url else paper.short()
    return "\n\n".join(
        [
            f"<!-- Made by `{MADE_BY}` from paceline/schemes/{name}.py; edit that file, not this one. -->",
            f"# {name}",
            scheme_catalogue.description(name),
            f"## Ten seconds of it\n\n{figure_text(name)}",
            f"## What it needs\n\n{table(('', ''), scheme_catalogue.needs(name).items())}",
            f"## Parameters\n\n{parameters(name)}",
            f"## Citation\n\n{link}; `paceline cite {name}` prints\n\n```bibtex\n{paper.bibtex()}\n```",
            "[All schemes](README.md) · [How to choose](../choose.md)\n",
        ]
    )


def figure_text(name: str) -> str:
    scheme = lookup(name)()
    below = ""
    if scheme.needs_peers:
        below = " Arrows are messages from worker to worker."
    elif scheme.server(1) is not None:
        below = "\nBelow, every update of the model, as high as it is stale."
    return FIGURE.format(name=name, step_s=f"{STEP_S:g}", model=f"{MODEL / 1e6:g}", below=below, command=command(name))


FIGURE = """\
Four workers, of which one needs twice and one four times as long for a step as the others ({step_s} s); a model of
{model} million parameters; cards of 10 Gbit/s. White lines part the steps.{below}

![{name} on four workers: who computes, waits and communicates, and when]({name}.png)

    {command}"""


def table(head: tuple[str, ...], rows: Any) -> str:
    lines = [" | ".join(row) for row in (head, ("---",) * len(head), *rows)]
    return "\n".join(f"| {line} |" for line in lines)


def parameters(name: str) -> str:
    rows = [
        (f"`{p.flag}`", p.type, f"`{p.default}`" if p.default else "", p.limits, p.help.replace("|", "\\|"))
        for p in scheme_catalogue.parameters(name)
    ]
    return table(("flag", "type", "default", "limits", "meaning"), rows) if rows else "None."


def index() -> str:
    parts = [
        f"<!-- Made by `{MADE_BY}`. -->",
        "# Schemes",
        "One page each: the paper's box, when to use it and when not, ten seconds of it in a picture, what it needs,\n"
        "its parameters, how to cite it. [How to choose](../choose.md) compares them.",
    ]
    for family, members in scheme_catalogue.families().items():
        rows = [(f"[{name}]({name}.md)", lookup(name).summary, lookup(name).paper.short()) for name in members]
        if rows:
            parts.append(f"## {family}\n\n{table(('scheme', 'what it does', 'paper'), rows)}")
    return "\n\n".join(parts) + "\n"


def main(wanted: list[str]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / "README.md").write_text(index())
    for name in wanted or names():
        (FOLDER / f"{name}.md").write_text(page(name))
        draw(name)


if __name__ == "__main__":
    main(sys.argv[1:])
