"""What the catalogue says of a scheme, whoever shows it: a terminal or a page of the documentation."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from paceline import schemes  # noqa: F401  enters the catalogue
from paceline.core.errors import ConfigError
from paceline.core.scheme import Limits, Scheme, limits_of, lookup, names, types_of

TOGETHER = "In rounds: one update, made of everybody's gradient"
AS_THEY_COME = "On servers: gradients are applied as they come, some wait, some are dropped"
LOCALLY = "Local steps: workers train on their own and meet, or report, now and then"
GOSSIP = "Without servers: every worker has a model of its own, and they are mixed"
COMPOSITE = "Several schemes: in turn, or one inside another"
FAMILIES = (TOGETHER, AS_THEY_COME, LOCALLY, GOSSIP, COMPOSITE)


def families() -> dict[str, list[str]]:
    """Returns the names of all schemes, by family."""
    return {family: [name for name in names() if family_of(lookup(name)) == family] for family in FAMILIES}


def family_of(cls: type[Scheme]) -> str:
    """Follows from what a scheme declares, with the parameters that it has by default."""
    scheme = cls()
    if scheme.composite:
        return COMPOSITE
    if scheme.needs_peers:
        return GOSSIP
    if scheme.trains_locally or scheme.own_momentum:
        return LOCALLY
    # Only what all do at once can be done by collectives alone.
    return TOGETHER if runs_without_servers(scheme) else AS_THEY_COME


def runs_without_servers(scheme: Scheme) -> bool:
    """Returns True if the scheme accepts four workers and no server. Four stands for any number that a scheme may
    require.
    """
    try:
        scheme.check(workers=4, servers=0)
    except ConfigError:
        return False
    return True


def description(name: str) -> str:
    """Returns the docstring of the scheme's file."""
    return (sys.modules[lookup(name).__module__].__doc__ or "").strip()


# ---- what it needs -----------------------------------------------------------------------------------------------
def needs(name: str) -> dict[str, str]:
    """What it runs on, where model and optimizer are, and what travels: in words, by what it is about."""
    scheme = lookup(name)()
    if family_of(lookup(name)) == COMPOSITE:
        return {"runs on": _runs_on(scheme), "all else": "as the schemes have it that it is made of"}
    return {
        "runs on": _runs_on(scheme),
        "model": _model(scheme),
        "optimizer": _optimizer(scheme),
        "what travels": _travels(scheme),
    }


def _runs_on(scheme: Scheme) -> str:
    """Returns the machines that the scheme needs. A scheme has a coordinator part if its class names one in
    `Coordinator`.
    """
    if scheme.needs_peers and scheme.server(1) is not None:
        text = "servers, and workers that reach one another"
    elif scheme.needs_peers:
        text = "workers that reach one another; no servers"
    elif not runs_without_servers(scheme):
        text = "servers"
    elif scheme.server(1) is not None:
        text = "servers, or collectives alone (`--servers 0`)"
    else:
        text = "collectives (`--servers 0`); where there are servers, they carry the means"
    return text + ("; the coordinator decides" if scheme.Coordinator else "")


def _model(scheme: Scheme) -> str:
    """Returns where the model is, with one server and, if that differs, without servers."""
    words = {
        "servers": "on the servers",
        "any worker": "on every worker, the same after each exchange",
        "mean of workers": "each worker has its own; that of the run is their weighted mean",
    }
    here = words[scheme.model_of(1)]
    if runs_without_servers(scheme) and scheme.model_of(0) != scheme.model_of(1):
        return f"{here}; without servers {words[scheme.model_of(0)]}"
    return here


def _optimizer(scheme: Scheme) -> str:
    """Returns where the optimizer's state is kept. Schemes with local steps keep it on the workers, as do those
    that have no part on a server.
    """
    if scheme.own_momentum:
        return "on every worker; momentum is the scheme's own"
    if scheme.trains_locally or scheme.server(1) is None:
        return "on every worker"
    return "on the servers" + ("; without servers on every worker" if runs_without_servers(scheme) else "")


def _travels(scheme: Scheme) -> str:
    """Returns what one exchange sends and receives. A scheme without a server part exchanges means, whoever
    computes them.
    """
    if scheme.needs_peers:
        return "models, from worker to worker"
    if scheme.server(1) is None:
        return "an exchange: a vector as long as the model into a mean over all workers, and the mean back"
    sent = "gradient"
    if scheme.trains_locally or scheme.own_momentum:
        sent = "weights, or what local steps changed in them,"
    return f"an exchange: the {sent} to the servers, and weights back"


# ---- parameters --------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class SchemeParameter:
    """One parameter of a scheme as text, ready to be shown: its flag with both dashes, the name of its Python type,
    its default, its range or choices, and its help.
    """

    flag: str
    type: str
    default: str
    limits: str
    help: str


def parameters(name: str) -> Iterator[SchemeParameter]:
    """Yields the parameters of a scheme in the order in which its class declares limits. The flag of
    `max_staleness` of a scheme `x` is `--x.max-staleness`.
    """
    cls = lookup(name)
    types, defaults = types_of(cls), cls().parameters()
    for key, limits in limits_of(cls).items():
        flag = f"--{name}.{key.replace('_', '-')}"
        yield SchemeParameter(
            flag, types[key].__name__, _shown(defaults[key]), _limits(limits, types[key]), limits.help
        )


def _shown(value: object) -> str:
    """Returns a default as a user types it: `true` and not `True`."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _limits(limits: Limits, kind: type) -> str:
    """Returns the range in words; it is empty where a number has no lower bound, since then there is nothing to
    tell.
    """
    if limits.choices:
        return ", ".join(limits.choices)
    if kind is bool:
        return "true, false"
    if math.isinf(limits.low):
        return ""
    return f"{limits.low:g} or more" if math.isinf(limits.high) else f"{limits.low:g} to {limits.high:g}"
