"""Divides the model of a run over its servers, and says why so.

The coordinator calls `lay_out` once, when all workers are ready. Example: 10 M parameters, servers that take 3 and 1
GB/s: shards of 7.5 M and 2.5 M, so that both have a gradient at the same time. A shard is then cut into slices of at
most `slice_mb` MiB.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from paceline.core import sharding
from paceline.core.adaptive.repeated_timing import most_alike
from paceline.core.coordination.control_messages import Hello, Ready
from paceline.core.sharding import Layout, parse_shards
from paceline.runtime.spec.job_spec import Recipe

PARAMETER_BYTES = 4
"""Bytes of a parameter as it is stored and exchanged: float32, also where passes run in lower precision."""


def lay_out(
    ready: Sequence[Ready], servers: Sequence[Hello], *, shards: str = "equal", slice_mb: float = 0.0
) -> tuple[Layout, str]:
    """Returns who holds what, and a sentence about it for the user.

        ready     the answer of each worker, by rank: length of the model, links
        servers   the Hello of each server, by shard: host, speed of updates
        shards    measured, equal, or fractions
        slice_mb  MiB of a slice at most; 0: a server's whole shard

    Shards are not cut into slices where the scheme or the optimizer forbids it, nor where gradients come as rows, of
    which few lie in a slice. Raises ConfigError when there are more servers than parameters.
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
    """Returns the speeds by which shards are cut, and where they come from; () for equal shards."""
    fractions = parse_shards(shards)
    if fractions:
        return fractions, "as --shards says"
    if shards == "equal" or len(servers) < 2:
        return (), "as --shards says"
    ranges = measured_speeds(ready, servers)
    if min(low for low, _ in ranges) <= 0:
        return (), "nobody has measured them"
    speeds = most_alike(ranges)
    spread = f"measured at {', '.join(f'{speed / 1e9:.1f}' for speed in speeds)} GB/s"
    # Measurements of equal machines differ by some percent. Unequal shards for that would only make every run
    # different.
    return ((), f"{spread}, which counts as alike") if sharding.alike(speeds) else (speeds, spread)


def measured_speeds(ready: Sequence[Ready], servers: Sequence[Hello]) -> list[tuple[float, float]]:
    """Returns, for each server, the bytes per second that it takes: the measured value, and the highest one possible.

    A server takes what its link to the workers brings, or what it can apply of that. Servers of one host are equally
    fast, whatever each of them measured while the others were starting up beside it.
    """
    by_host: dict[str, tuple[float, float]] = {}
    for hello in servers:
        low, high = by_host.get(hello.host, (0.0, 0.0))
        most = max(hello.bytes_per_second, hello.bytes_per_second_max)
        by_host[hello.host] = max(low, hello.bytes_per_second), max(high, most)
    ranges = []
    for number, hello in enumerate(servers):
        low, high = by_host[hello.host]
        links = [link for answer in ready if (link := _link(answer, number))[0]]
        if links:
            low = min(low, statistics.median(low for low, _ in links))
            high = min(high, statistics.median(high for _, high in links))
        ranges.append((low, high))
    return ranges


def _link(answer: Ready, server: int) -> tuple[float, float]:
    """Returns the bytes per second from a server to one worker, measured and highest possible; 0 if it did not
    measure."""
    low, high = (links[server] if server < len(links) else 0.0 for links in (answer.links, answer.links_max))
    return low, max(low, high)


def _described(layout: Layout, servers: int, why: str) -> str:
    """Returns the sentence about a layout: parameters, servers, slices, and the share of each server where they
    differ."""
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
