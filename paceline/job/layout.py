"""How the model of a run is cut over its servers, and why so."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

from paceline.core import sharding
from paceline.core.sharding import Layout, parse_shards
from paceline.job.recipe import Recipe
from paceline.live.control import Hello, Ready

PARAMETER_BYTES = 4


def lay_out(
    ready: Sequence[Ready], servers: Sequence[Hello], *, shards: str = "equal", slice_mb: float = 0.0
) -> tuple[Layout, str]:
    """Who holds what, and a sentence about it.

    shards: measured, equal, or fractions. slice_mb: MiB of a slice at most; 0, or a scheme or optimizer whose
    shards must not be cut further, means a server's whole shard; so do gradients that come as rows, of which few lie
    in a slice.
    Raises ConfigError when there are more servers than parameters.
    """
    recipe = Recipe.from_json(ready[0].optimizer)
    if recipe.store:
        return sharding.NOWHERE, f"a key-value store ({recipe.store.type}) on {len(servers)} servers"
    whole = not slice_mb or ready[0].by_rows or recipe.make_scheme().one_gate or recipe.optimizer.needs_model
    slice_length = 0 if whole else max(1, round(slice_mb * 2**20 / PARAMETER_BYTES))
    speeds, why = _speeds(ready, servers, shards)
    layout = sharding.lay_out(ready[0].length, len(servers), slice_length, speeds=speeds, tensors=ready[0].tensors)
    return layout, _described(layout, len(servers), why)


def _speeds(ready: Sequence[Ready], servers: Sequence[Hello], shards: str) -> tuple[Sequence[float], str]:
    """By which the shards are cut, and where they are from; none for equal shards."""
    fractions = parse_shards(shards)
    if fractions:
        return fractions, "as --shards says"
    if shards == "equal" or len(servers) < 2:
        return (), "as --shards says"
    speeds = measured_speeds(ready, servers)
    if min(speeds) <= 0:
        return (), "nobody has measured them"
    spread = f"measured at {', '.join(f'{speed / 1e9:.1f}' for speed in speeds)} GB/s"
    return ((), f"{spread}, which counts as alike") if sharding.alike(speeds) else (speeds, spread)


def measured_speeds(ready: Sequence[Ready], servers: Sequence[Hello]) -> list[float]:
    """Bytes a second that each server takes: what its link to the workers brings, or what it can apply of them.

    Servers of one host are equally fast, whatever each of them measured while the others were starting up beside it.
    """
    by_host: dict[str, float] = defaultdict(float)
    for hello in servers:
        by_host[hello.host] = max(by_host[hello.host], hello.bytes_per_second)
    speeds = []
    for number, hello in enumerate(servers):
        links = [answer.links[number] for answer in ready if answer.links and answer.links[number]]
        speeds.append(min([by_host[hello.host], *([statistics.median(links)] if links else [])]))
    return speeds


def _described(layout: Layout, servers: int, why: str) -> str:
    parameters = f"{layout.length:,} parameters"
    if not servers:
        return f"{parameters} on every worker, no servers"
    pieces = len(layout.slices)
    slices = f", {pieces} slices" if pieces > servers else ""
    if servers == 1:
        return f"{parameters} on 1 server{slices}"
    held = dict.fromkeys(range(servers), 0)
    for holder, part in zip(layout.holders, layout.slices, strict=True):
        held[holder] += part.stop - part.start
    if max(held.values()) - min(held.values()) <= 1:
        return f"{parameters} on {servers} servers{slices}: equal shards ({why})"
    percent = ", ".join(f"{100 * size / layout.length:.0f} %" for size in held.values())
    return f"{parameters} on {servers} servers{slices}: {percent} ({why}); server {layout.holders[0]} has the beginning"
