"""Every schedule for a number of members."""

from __future__ import annotations

from paceline.core.collective import PEERS, Schedule, schedule_for

UP_TO = range(2, 65)


# A schedule hangs on n's bits and divisors: all small n, then primes, powers of two and their neighbours have every
# schedule tried; of any other n one is drawn.
TELLING = [n for n in UP_TO if n <= 16 or n in (32, 33, 63, 64) or all(n % k for k in range(2, n))]


def schedules(n: int) -> list[Schedule]:
    """All there are for n members; the hierarchical one for hosts as unlike as they come."""
    three = tuple(tuple(range(h, n, 3)) for h in range(min(3, n)))
    lopsided = (tuple(range(n // 2 + 1)), *((i,) for i in range(n // 2 + 1, n)))
    hosts = [(tuple(range(n)),), three, lopsided, ()] if n <= 20 else [three]
    return [schedule_for(name, n) for name in PEERS if name != "hierarchical"] + [
        schedule_for("hierarchical", n, each) for each in hosts
    ]
