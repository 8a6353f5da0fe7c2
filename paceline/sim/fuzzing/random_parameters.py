"""Draws parameters of schemes from a seed, under which a run of a few steps meets everything that a scheme does.

By default phases change after 100 steps and fragments travel every 20: no short run would see that. So counts are
small here, and every variant that has rules of its own has its turn.

A new scheme gets a function here and an entry in PARAMETERS, and joins the end of NEWER.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from paceline.core.phases.grammar import Condition, Phase
from paceline.core.scheme import Scheme, make
from paceline.core.tiers.scheme_text import parse_tier

Drawn = Mapping[str, Any]

PAYLOADS = ("gradient", "delta", "weights")
MEMORY = ("keep", "reset", "average")
NEWER = ("decoupled", "sparseloco", "muloco", "noloco", "tiers", "prague", "halos")
"""Schemes that came when seeds of the others were noted already, in tests and issues.

They replace a phase of `hybrid` after everything else of it was drawn, so those seeds still draw the same.
"""
SHARE_OF_NEWER = 0.25
COMPOSITE = {"hybrid", "tiers", "halos"}
"""Schemes that are made of others, and are no phase of `hybrid`."""
GOSSIP = {"gosgd", "adpsgd", "sgp", "noloco", "prague"}
"""Schemes of which two in a row are refused by `hybrid`."""


def schemes_of(seed: int, names: Sequence[str]) -> list[Scheme]:
    """Returns a scheme of every name, with the parameters that `seed` draws; the same whatever else is in `names`."""
    return [scheme_of(name, Random(f"fuzz/{seed}/{name}")) for name in names]


def scheme_of(name: str, random: Random) -> Scheme:
    """Returns the scheme of that name with drawn parameters, or with its defaults if PARAMETERS has no entry."""
    return make(name, dict(PARAMETERS[name](random)) if name in PARAMETERS else {})


def _pushing(r: Random) -> Drawn:
    """Draws how often a worker pushes, and what: gradients, deltas or weights."""
    return {"steps": r.randint(1, 3), "payload": r.choice(PAYLOADS), "memory": r.choice(MEMORY[:2])}


def _bsp(r: Random) -> Drawn:
    """Draws how often a worker pushes, and whether gradients or deltas."""
    return {"steps": r.randint(1, 3), "payload": r.choice(PAYLOADS[:2])}


def _weighting(r: Random) -> Drawn:
    """Draws whether late contributions count less."""
    return {"steps": r.randint(1, 2), "weighting": r.choice(("none", "inverse"))}


def _gsp(r: Random) -> Drawn:
    """Draws groups that follow the speeds within a few steps, from nearly equal ones to any."""
    ratio, hysteresis = r.choice((1.1, 1.5, 3.0)), r.choice((0.0, 0.1))
    return {"steps": r.randint(1, 2), "regroup": r.randint(1, 6), "ratio": ratio, "hysteresis": hysteresis}


def _dssp(r: Random) -> Drawn:
    """Draws bounds that meet, and bounds that leave room to choose between."""
    low = r.randint(0, 2)
    return {"low": low, "high": low + r.randint(0, 4)}


def _ksync(r: Random) -> Drawn:
    """Draws rounds that close early, and what becomes of those that come late."""
    variant, late = r.choice(("sync", "batch")), r.choice(("drop", "fold"))
    return {"k": r.randint(0, 2), "steps": r.randint(1, 2), "variant": variant, "late": late}


def _lbbsp(r: Random) -> Drawn:
    """Draws a global batch that a slow worker alone can train in time, and whether small changes are passed over."""
    return {"global_batch": r.choice((0, 12)), "hysteresis": r.choice((0.0, 0.05))}


def _esync(r: Random) -> Drawn:
    """Draws both papers' variants, the smoothing of times, and a cap on local steps."""
    variant, smoothing = r.choice(("journal", "preprint")), r.choice(("last", "ema:0.5", "median:3"))
    delayed = r.random() < 0.5
    return {"variant": variant, "smoothing": smoothing, "cap": r.choice((0, 2)), "delayed_ack": delayed, **_memory(r)}


def _memory(r: Random) -> Drawn:
    """Draws what becomes of the local optimizers' memory when workers meet."""
    return {"memory": r.choice(MEMORY)}


def _elastic(r: Random) -> Drawn:
    """Draws both forms, with few and with several local steps."""
    return {"tau": r.randint(1, 4), "synchronous": r.random() < 0.5, "memory": r.choice(MEMORY[:2])}


def _local(r: Random) -> Drawn:
    """Draws the local steps of a round, and what becomes of memory."""
    return {"tau": r.randint(1, 4), **_memory(r)}


def _postlocal(r: Random) -> Drawn:
    """Draws an early and a late switch from every step to local steps, counted in steps or samples."""
    return {**_local(r), "switch": r.choice(("4 steps", "9 steps", "60 samples"))}


def _diloco(r: Random) -> Drawn:
    """Draws DiLoCo's parameters: `h` is a multiple of the fragments, and a delay is shorter than the pause between
    them."""
    fragments, apart = r.randint(1, 3), r.randint(1, 3)
    delay, memory = r.randint(0, apart - 1), r.choice(MEMORY)
    return {
        "h": fragments * apart,
        "fragments": fragments,
        "delay": 0 if memory == "average" else delay,
        "memory": memory,
    }


def _muloco(r: Random) -> Drawn:
    """Draws parameters of DiLoCo, and in half of the runs eager updates; these need a smaller momentum."""
    drawn = dict(_diloco(r))
    if r.random() < 0.5:
        return drawn
    drawn |= {"delay": 0, "memory": r.choice(MEMORY[:2])}
    return {**drawn, "eager": True, "outer_momentum": 0.5}


def _asyncdiloco(r: Random) -> Drawn:
    """Draws the local steps, and whether the server gathers contributions for an update."""
    return {"h": r.randint(1, 4), "buffer": r.randint(0, 3), "dynamic": r.random() < 0.5}


def _decoupled(r: Random) -> Drawn:
    """Draws turns of a few steps, with and without an overlap, and a quorum that may be missed."""
    fragments, apart = r.randint(1, 3), r.randint(1, 4)
    return {
        "h": fragments * apart,
        "fragments": fragments,
        "tau": r.randint(0, apart - 1),
        "quorum": r.randint(0, 2),
        "grace": r.choice((0.0, 0.5, 1.0)),
        "dynamic": r.random() < 0.7,
        "memory": r.choice(MEMORY[:2]),
    }


def _gossip(r: Random) -> Drawn:
    """Draws how often a worker sends to another one."""
    return {"p": r.choice((0.1, 0.5, 1.0)), "memory": r.choice(MEMORY[:2])}


def _adpsgd(r: Random) -> Drawn:
    """Draws whom a worker may average with."""
    return {"topology": r.choice(("ring", "complete")), "memory": r.choice(MEMORY[:2])}


def _sgp(r: Random) -> Drawn:
    """Draws whom a worker sends to, and after how many steps shares have to be there (tau)."""
    topology = r.choice(("exponential", "random", "complete", "ring"))
    return {"topology": topology, "tau": r.randint(0, 2), "memory": r.choice(MEMORY[:2])}


def _prague(r: Random) -> Drawn:
    """Draws the size of groups, how they are made, and a filter that keeps workers out early or late."""
    groups, memory = r.choice(("division", "random")), r.choice(MEMORY[:2])
    return {
        "size": r.choice((0, 2, 3)),
        "groups": groups,
        "c_thres": r.randint(1, 4),
        "h": r.randint(1, 2),
        "memory": memory,
    }


INNER = ("bsp", "asp", "ssp", "gsp", "ksync", "esync(cap=3)", "localsgd(tau=2)", "slowmo(tau=2)", "diloco(h=2)")
"""Schemes inside a group, of which all work there with the weights of the outer ones."""
OUTER = (
    *("asyncdiloco(h=2)", "asyncdiloco(h=3, dynamic=false)", "bsp(payload=delta, steps=2)", "asp(payload=delta)"),
    *("decoupled(h=2, fragments=1, tau=0)", "decoupled(h=6, fragments=2, tau=1)", "ssp(staleness=1)", "bsp", "asp"),
    *("ksync(k=1)", "easgd(tau=2)", "dcasgd"),
)


def _tiers(r: Random) -> Drawn:
    """Draws what is inside the groups and between them; outer schemes of gradients have bsp inside."""
    outer = r.choice(OUTER)
    name, given = parse_tier(outer)
    return {"outer": outer, "inner": "bsp" if make(name, given).computes else r.choice(INNER)}


def _halos(r: Random) -> Drawn:
    """Draws short rounds and few deltas between exchanges, and merges that keep much, little or nothing."""
    return {
        "h": r.randint(1, 3),
        "k": r.randint(1, 4),
        "alpha": r.choice((0.25, 0.5, 1.0)),
        "local_delay": r.randint(1, 4),
        "global_delay": r.randint(1, 2),
        "local_momentum": r.choice((0.0, 0.5)),
        "memory": r.choice(MEMORY[:2]),
    }


def _hybrid(r: Random) -> Drawn:
    """Draws two or three phases, so short that all are seen. Of two gossip schemes in a row, which are refused, one
    goes."""
    known = [name for name in PARAMETERS if name not in COMPOSITE and name not in NEWER]
    drawn = r.sample(known, r.randint(2, 3))
    names = [name for number, name in enumerate(drawn) if not (number and {name, drawn[number - 1]} <= GOSSIP)]
    last = len(names) - 1
    phases = [
        Phase(scheme=name, parameters=PARAMETERS[name](r), until=() if number == last else (_end(r),))
        for number, name in enumerate(names)
    ]
    if r.random() < SHARE_OF_NEWER:
        name = r.choice([name for name in NEWER if name not in COMPOSITE])
        number = r.randrange(len(phases))
        beside = {phase.scheme for phase in (*phases[max(0, number - 1) : number], *phases[number + 1 : number + 2])}
        if name in GOSSIP and beside & GOSSIP:
            name = NEWER[0]
        phases[number] = replace(phases[number], scheme=name, parameters=PARAMETERS[name](r))
    return {"phases": "; ".join(map(str, phases)), "epoch_samples": 40}


def _end(r: Random) -> Condition:
    """Draws the condition that ends a phase."""
    unit = r.choice(("steps", "seconds", "epochs"))
    return unit, float(r.randint(1, 2 if unit == "epochs" else 8))


PARAMETERS: Mapping[str, Callable[[Random], Drawn]] = {
    "bsp": _bsp,
    "asp": lambda r: {**_pushing(r), **_weighting(r)},
    "ssp": lambda r: {**_weighting(r), "staleness": r.randint(0, 3)},
    "gsp": _gsp,
    "partial": lambda r: {**_pushing(r), "max_advance": r.randint(1, 4)},
    "weedout": lambda r: {**_pushing(r), "window": r.randint(0, 4)},
    "ksync": _ksync,
    "dssp": _dssp,
    "dcasgd": lambda r: {"steps": r.randint(1, 2), "variant": r.choice(("constant", "adaptive", "mxnet"))},
    "lbbsp": _lbbsp,
    "esync": _esync,
    "localsgd": _local,
    "postlocal": _postlocal,
    "slowmo": _local,
    "easgd": _elastic,
    "eamsgd": _elastic,
    "diloco": _diloco,
    "asyncdiloco": _asyncdiloco,
    "decoupled": _decoupled,
    "sparseloco": lambda r: {"h": r.randint(1, 4), "alpha": r.choice((0.5, 1.0)), **_memory(r)},
    "muloco": _muloco,
    "noloco": lambda r: {"h": r.randint(1, 4), "gamma": r.choice((0.3, 0.7, 1.0)), "memory": r.choice(MEMORY[:2])},
    "gosgd": _gossip,
    "adpsgd": _adpsgd,
    "sgp": _sgp,
    "prague": _prague,
    "halos": _halos,
    "hybrid": _hybrid,
    "tiers": _tiers,
}
"""By name of a scheme, the function that draws its parameters."""
