"""Says which workers are alike: groups as a user writes them down, and groups found by speed.

Groups by speed are clusters of log step times. Neighbours are merged, the pair whose union adds the least variance
first (Ward 1963), which gives one grouping for each number of groups. Of those whose mean step times all differ by
`ratio` or more, the one with the best silhouette is taken (Rousseeuw 1987; with distances to means, and 1 for a group
of one): 0 when a worker lies between its group and the next, 1 when its group is a point. One group has 0 by
definition.
"""

from __future__ import annotations

import heapq
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence

from paceline.core.errors import ConfigError

Groups = tuple[tuple[int, ...], ...]
AUTO = "auto"
"""Groups that nobody wrote down."""

_RANK = re.compile(r"\d+")
_ADDRESS = re.compile(r"[\d.]+|[\da-fA-F:]*:[\da-fA-F:]+")
NAMES_SHOWN = 8
"""The most names that an error lists of each kind."""
GROUPS_MAX = 16
"""The most groups by speed. At a ratio of 1.5 so many groups span a factor 400."""


# ---- as a user writes them ---------------------------------------------------------------------------------------
def parse_groups(text: str) -> Groups:
    """Returns the groups in `text`: one a line or separated by semicolons; members separated by spaces or commas.

    Members are ranks, or else the names of hosts, as in the `groups` file of MXNet-G. There a host stands once for each
    of its workers, and its ranks are those that MXNet-G guessed: all names sorted, the last one is rank 0. Raises
    ValueError when a worker would be in two groups, and for ranks and names mixed. `ranks_for_names` does not guess.
    """
    rows = _rows(text)
    names = list(itertools.chain.from_iterable(rows))
    ranks = [name for name in names if _RANK.fullmatch(name)]
    if not ranks and names:
        return _groups_of_hosts(rows)
    if len(ranks) < len(names):
        strange = next(name for name in names if not _RANK.fullmatch(name))
        raise ValueError(f"{strange!r} is no rank, and {ranks[0]} is one: write ranks alone, or names alone")
    if len(set(map(int, names))) != len(names):
        raise ValueError("a worker may be in one group only")
    return tuple(tuple(map(int, row)) for row in rows)


def check_groups(text: str) -> None:
    """Raises ValueError for text that means no groups, whatever hosts there are: `ranks_for_names` knows those."""
    ranks = [bool(_RANK.fullmatch(name)) for row in _rows(text) for name in row]
    if all(ranks) or not any(ranks):
        parse_groups(text)


def ranks_for_names(text: str, places: Mapping[str, Sequence[str]]) -> str:
    """Returns `text`, groups as a user writes them, with ranks in place of names.

    places: by what they are ("hosts", "labels", ...), the name of each rank's place. A row of names stands for all
    workers at these places. Ranks stay as they are, and so do addresses of which none is known: MXNet-G's file.
    Raises ValueError, with the names that there are, for another name or one in two groups.
    """
    rows = _rows(text)
    names = dict.fromkeys(itertools.chain.from_iterable(rows))
    if all(_RANK.fullmatch(name) for name in names):
        return text
    for by_rank in places.values():
        if names.keys() <= set(by_rank):
            return _text_of_rows(rows, by_rank)
    known = set(itertools.chain.from_iterable(places.values()))
    unknown = [name for name in names if name not in known and not _RANK.fullmatch(name)]
    if unknown == [*names] and all(_ADDRESS.fullmatch(name) for name in names):
        return text
    there = "; ".join(f"{what}: {_few(by_rank)}" for what, by_rank in places.items() if any(by_rank))
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no rank, and no name that there is; {there}")
    raise ValueError(f"write ranks alone, or names of one kind alone; {there}")


def groups_written(groups: str, labels: str) -> Groups:
    """Returns the groups that a user wrote down, as groups or by labels; () for auto. Raises ValueError."""
    if labels:
        return parse_labels(labels)
    return () if groups == AUTO else parse_groups(groups)


def check_written(scheme: str, groups: str, labels: str, workers: int) -> None:
    """Raises ConfigError where both are written down, or what is does not name each worker once. `scheme`: whose."""
    if labels and groups != AUTO:
        raise ConfigError(f"{scheme}.groups and {scheme}.labels both say who is in a group: leave one out")
    try:
        found = groups_written(groups, labels)
    except ValueError as error:
        raise ConfigError(f"{scheme}.groups: {error}") from None
    if found and sorted(itertools.chain.from_iterable(found)) != list(range(workers)):
        what = f"labels = {labels!r}" if labels else f"groups = {groups!r}"
        raise ConfigError(f"{scheme}.{what} must name each of the workers 0..{workers - 1} once")


def written(groups: Groups) -> str:
    """Returns groups as a user writes them: `0,1;2,3`."""
    return ";".join(",".join(map(str, ranks)) for ranks in groups)


def _rows(text: str) -> list[list[str]]:
    return [re.split(r"[,\s]+", row.strip()) for row in re.split(r"[;\n]", text) if row.strip()]


def _text_of_rows(rows: Sequence[Sequence[str]], by_rank: Sequence[str]) -> str:
    """Returns ranks by group for rows of places. Raises ValueError for a place in two groups."""
    for name in set(itertools.chain.from_iterable(rows)):
        if sum(name in row for row in rows) > 1:
            raise ValueError(f"{name!r} stands in two groups: write ranks instead")
    return ";".join(",".join(str(rank) for rank, name in enumerate(by_rank) if name in row) for row in rows)


def _few(names: Sequence[str]) -> str:
    """Returns the first of these names, each once."""
    each = list(dict.fromkeys(filter(None, names)))
    return ", ".join(each[:NAMES_SHOWN]) + (f" and {len(each) - NAMES_SHOWN} more" if len(each) > NAMES_SHOWN else "")


def _groups_of_hosts(rows: Sequence[Sequence[str]]) -> Groups:
    """Returns groups of ranks for rows of host names, by MXNet-G's guess: names sorted in reverse
    are ranks 0, 1, ....
    """
    free: dict[str, list[int]] = {}
    for rank, host in enumerate(sorted(itertools.chain.from_iterable(rows), reverse=True)):
        free.setdefault(host, []).append(rank)
    homes = {host: {number for number, row in enumerate(rows) if host in row} for host in free}
    split = [host for host, numbers in homes.items() if len(numbers) > 1]
    if split:
        raise ValueError(f"all workers of a host are in one group, {split[0]!r} stands in two: write ranks instead")
    return tuple(tuple(sorted(free[host].pop() for host in row)) for row in rows)


def parse_labels(text: str) -> Groups:
    """Returns the groups in `"a,a,b,b"` or `"a*2,b*2"`, a label for each rank in turn: equal labels make a group.

    Raises ValueError for what is not a list of labels.
    """
    groups: dict[str, list[int]] = {}
    rank = 0
    for part in text.split(","):
        label, _, times = (piece.strip() for piece in part.partition("*"))
        if not label or not (times or "1").isdigit():
            raise ValueError(f"write a label for each worker, as 'a,a,b,b' or 'a*2,b*2', not {part!r}")
        for _ in range(int(times or 1)):
            groups.setdefault(label, []).append(rank)
            rank += 1
    return tuple(map(tuple, groups.values()))


# ---- by speed ----------------------------------------------------------------------------------------------------
def groups_by_speed(seconds: Mapping[int, float], ratio: float) -> Groups:
    """Returns the best grouping of the ranks in `seconds`, the fastest group first; () for nobody."""
    order = sorted(seconds, key=lambda rank: (seconds[rank], rank))
    if not order:
        return ()
    best: Groups = (tuple(sorted(order)),)
    best_score = 0.0
    for starts in _clusterings([math.log(seconds[rank]) for rank in order]):
        edges = [*starts, len(order)]
        groups = tuple(tuple(sorted(order[a:b])) for a, b in itertools.pairwise(edges))
        better = score(groups, seconds, ratio)
        if better > best_score:
            best, best_score = groups, better
    return best


def score(groups: Groups, seconds: Mapping[int, float], ratio: float) -> float:
    """Returns how well `groups` describe the speeds: the silhouette, 0 for one group; -1 where two are as good as one.

    `seconds`: step time by rank. Two groups are as good as one where their means differ by less than `ratio`.
    """
    if len(groups) < 2:
        return 0.0
    logs = [[math.log(seconds[rank]) for rank in group] for group in groups]
    means = [sum(xs) / len(xs) for xs in logs]
    if any(b - a < math.log(ratio) - 1e-12 for a, b in itertools.pairwise(sorted(means))):
        return -1.0
    total = 0.0
    for own, xs in enumerate(logs):
        others = means[:own] + means[own + 1 :]
        for x in xs:
            a, b = abs(x - means[own]), min([abs(x - mean) for mean in others])
            total += (b - a) / max(a, b) if a != b else 0.0  # both are 0 where all workers are equally fast
    return total / sum(map(len, logs))


def rounds_of(groups: Groups, seconds: Mapping[int, float]) -> dict[int, float]:
    """Returns the seconds that a round takes each rank: the step time of the slowest member of its group."""
    return {rank: max(seconds[member] for member in group) for group in groups for rank in group}


def _clusterings(xs: Sequence[float]) -> Iterator[list[int]]:
    """Yields where the clusters of the sorted `xs` begin, for each number of clusters from GROUPS_MAX down to 2.

    It is O(n log n): the clusters are a linked list (`after`, `before`), and the heap has the cost of each union of two
    neighbours. An entry is stale when one of the two has been merged since, which their sizes show.
    """
    size, mean = [1] * len(xs), list(xs)
    after, before = list(range(1, len(xs) + 1)), list(range(-1, len(xs) - 1))

    def union(a: int) -> tuple[float, int, int, int, int]:
        """Returns by how much the sum of squares grows where `a` and the cluster behind it become one (Ward)."""
        b = after[a]
        return size[a] * size[b] / (size[a] + size[b]) * (mean[a] - mean[b]) ** 2, a, b, size[a], size[b]

    heap = [union(a) for a in range(len(xs) - 1)]
    heapq.heapify(heap)
    clusters = len(xs)
    while clusters > 1:
        if clusters <= GROUPS_MAX:
            yield _starts(after)
        _, a, b, *sizes = heapq.heappop(heap)
        while after[a] != b or sizes != [size[a], size[b]] or not size[a]:  # a stale entry
            _, a, b, *sizes = heapq.heappop(heap)
        mean[a] = (size[a] * mean[a] + size[b] * mean[b]) / (size[a] + size[b])
        size[a], size[b], after[a] = size[a] + size[b], 0, after[b]
        clusters -= 1
        if after[a] < len(xs):
            before[after[a]] = a
            heapq.heappush(heap, union(a))
        if before[a] >= 0:
            heapq.heappush(heap, union(before[a]))


def _starts(after: Sequence[int]) -> list[int]:
    """Returns the first index of each cluster, following the linked list."""
    starts = [0]
    while after[starts[-1]] < len(after):
        starts.append(after[starts[-1]])
    return starts
