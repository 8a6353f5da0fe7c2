"""Chooses who carries `Mean` in a run: servers, torch.distributed, or the workers themselves.

    first rule that holds                               carrier
    codecs encode messages, and there are servers       servers
    the scheme has no means                             none (servers, without a reason)
    the user named one                                  that one
    no servers, every worker has a GPU, no TLS          nccl
    otherwise                                           the cheapest by measured links: servers, ring, pairwise, ...

The coordinator chooses once, when all workers are ready, and the choice travels in the `Plan`. This module does
without torch, since the coordinator's process has none.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.core.collective import PEERS, Choice, Fabric, LinkCost, choose, homes_of
from paceline.core.coordination import control_messages as control
from paceline.core.scheme import Scheme
from paceline.runtime.spec.job_spec import Recipe

UNKNOWN = (0.0, 0.0, 0.0, 0.0)  # links inside a host and across
MESHES_MAX = 32  # workers: beyond it, nobody is connected to everybody unasked


def own_gpus(devices: Sequence[str]) -> bool:
    """Returns True if every worker has a GPU of its own."""
    return len(set(devices)) == len(devices) > 0 and all(device.startswith("cuda:") for device in devices)


def meets_for_means(mean: str, scheme: Scheme, servers: int, workers: int) -> bool:
    """Returns True if the workers connect to one another so that they can carry means.

    Connections grow with the square of the workers, so beyond MESHES_MAX this must be asked for, unless there are no
    servers.
    """
    if servers and not scheme.uses_mean(servers):
        return False
    return (
        mean in PEERS or (mean == "auto" and (workers <= MESHES_MAX or not servers)) or (workers == 1 and not servers)
    )


def choose_allreduce(
    ready: Sequence[control.Ready],
    workers: Sequence[control.Hello],
    servers: int,
    *,
    wanted: str,
    secured: bool = False,
) -> Choice:
    """Returns who carries the means where `wanted` is asked for, and why; no reason where there are no means.

    secured: connections are under TLS, which NCCL's are not, so NCCL must be asked for.
    """
    recipe = Recipe.from_json(ready[0].optimizer)
    scheme = recipe.make_scheme()
    if recipe.codecs.in_messages and servers and wanted == "auto":
        return Choice("servers", "means by servers: codecs encode what passes through them")
    if servers and not scheme.uses_mean(servers):
        return Choice("servers", "")
    if not meets_for_means("auto", scheme, servers, len(workers)):
        return Choice("servers" if wanted == "auto" else wanted, "")
    chosen = (
        _by_cost(ready, workers, servers, secured)
        if wanted == "auto"
        else Choice(wanted, f"{wanted}, as --allreduce says")
    )
    if len(workers) == 1 and not servers:
        return Choice("ring", "")
    return Choice(chosen.name, f"means by {chosen.reason}" if scheme.uses_mean(servers) else "")


def _by_cost(ready: Sequence[control.Ready], workers: Sequence[control.Hello], servers: int, secured: bool) -> Choice:
    """Returns the cheapest carrier by the latencies and bandwidths that workers measured."""
    if not servers and not secured and own_gpus([hello.device for hello in workers]):
        return Choice("nccl", "nccl: every worker has a GPU of its own")
    if len(workers) == 1:
        return Choice("servers", "servers: there is one worker")
    measured = [answer.peers for answer in ready if len(answer.peers) == len(UNKNOWN)] or [UNKNOWN]
    within, across = ([links[k : k + 2] for links in measured] for k in (0, 2))
    homes = homes_of(range(len(workers)), [hello.host for hello in workers])
    fabric = Fabric(homes, _slowest(within), _slowest(across), servers)
    codecs = Recipe.from_json(ready[0].optimizer).codecs
    return choose(fabric, codecs.bytes_of_mean(ready[0].length), gathered=codecs.gathers)


def _slowest(links: Sequence[tuple[float, ...]]) -> LinkCost:
    """Returns the slowest of the measured links: a collective waits for it."""
    return LinkCost(*(max(figures) for figures in zip(*links, strict=True)))
