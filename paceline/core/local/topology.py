"""Says who talks to whom when workers talk to one another, as pure functions of positions 0..n-1.

Directed graphs give the workers that position `i` of `n` sends to in round `k`; nobody is named twice, nobody sends to
itself, and everybody who knows `i`, `k` and `n` knows the same edges, so no message has to say them.

    exponential  2^0, 2^1, ... 2^floor(log2(n - 1)) places ahead, one of them a round, in turn: after as many rounds
                 as there are hops everybody has heard of everybody (Assran et al. 2019, Appendix A)
    ring         one place ahead, always
    complete     everybody, always
    random       pairs drawn by `seed` and round; an odd one out rests

The bipartite split of Lian et al. 2018: even positions are active and ask, odd ones are passive and answer. Two active
workers never ask each other, so no two wait for one another.
"""

from __future__ import annotations

from collections.abc import Collection
from random import Random

DIRECTED = ("exponential", "ring", "complete", "random")
BIPARTITE = ("ring", "complete")


def sends_to(topology: str, i: int, k: int, n: int, seed: int = 0) -> tuple[int, ...]:
    """Returns where position `i` of `n` sends in round `k`. `topology` is one of DIRECTED."""
    return _neighbours(topology, i, k, n, seed, ahead=1)


def hears_from(topology: str, i: int, k: int, n: int, seed: int = 0) -> tuple[int, ...]:
    """Returns who sends to position `i` in round `k`: the same edges from the other end."""
    return _neighbours(topology, i, k, n, seed, ahead=-1)


def _neighbours(topology: str, i: int, k: int, n: int, seed: int, ahead: int) -> tuple[int, ...]:
    """Returns who is `ahead` of position i (1: receives from it; -1: sends to it)."""
    if n < 2:
        return ()
    match topology:
        case "exponential":
            return ((i + ahead * 2 ** (k % hops(n))) % n,)
        case "ring":
            return ((i + ahead) % n,)
        case "complete":
            return tuple((i + ahead * places) % n for places in range(1, n))
        case "random":
            partner = paired_with(i, k, n, seed)
            return () if partner is None else (partner,)
        case _:
            raise ValueError(f"no directed topology is called {topology!r}; there are: {', '.join(DIRECTED)}")


def hops(n: int) -> int:
    """Returns how many different distances the exponential graph over `n` >= 2 workers has."""
    return (n - 1).bit_length()


def paired_with(i: int, k: int, n: int, seed: int = 0) -> int | None:
    """Returns the partner of position `i` in round `k`; None for the odd one out.

    The pairs are one of the rounds of a round-robin tournament (the circle method), drawn at random, so that a pair is
    found without drawing all the others. Over the rounds everybody meets everybody equally often.
    """
    players = n - 1 + n % 2  # an even number of workers: the last one sits in the middle of the circle
    turn = Random(f"{seed}/pairs/{k}").randrange(players)
    if i == players:
        return turn * (players + 1) // 2 % players
    partner = (turn - i) % players
    if partner != i:
        return partner
    return None if n % 2 else players


def position(rank: int, gone: Collection[int]) -> int:
    """Returns the place of `rank` in the line of those who are still there."""
    return rank - sum(1 for other in gone if other < rank)


def is_active(rank: int, gone: Collection[int]) -> bool:
    """Returns True if `rank` is at an even position of those who are still there."""
    return position(rank, gone) % 2 == 0


def passive_beside(rank: int, n: int, gone: Collection[int]) -> tuple[int, ...]:
    """Returns the passive neighbours of an active worker on the ring of those who are still there.

    Where their number is odd, the ends of the line are both active and the ring is left open between them.
    """
    last = n - 1 - len(gone)
    here, found = position(rank, gone), []
    if here < last or (last % 2 and last > 0):
        found.append(_next(rank, 1, n, gone))
    if here > 0 or (last % 2 and last > 0):
        found.append(_next(rank, -1, n, gone))
    return tuple(dict.fromkeys(found))


def _next(rank: int, step: int, n: int, gone: Collection[int]) -> int:
    """Returns the next rank in that direction that is still there."""
    other = (rank + step) % n
    while other in gone:
        other = (other + step) % n
    return other
