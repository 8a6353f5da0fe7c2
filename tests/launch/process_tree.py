"""Looking at processes from outside, by /proc."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

LIGHT = """
import gc, torch
gc.freeze()
add = torch.optim.Optimizer.add_param_group.__wrapped__
add.__dynamo_disable = add
"""
"""The first lines of a script that many of start: it has torch without its compiler, which the first optimizer imports
for two seconds, and ends without a last look through all of torch, for another one. Whole as users have it torch is in
tests/examples."""


def stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the name: state, parent, ...; empty when there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def comm(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def alive(pid: int) -> bool:
    fields = stat(pid)
    return bool(fields) and fields[0] != "Z"


def descendants(root: int) -> list[int]:
    parents = {int(p.name): stat(int(p.name)) for p in Path("/proc").iterdir() if p.name.isdigit()}
    found, frontier = [], [root]
    while frontier:
        parent = frontier.pop()
        children = [pid for pid, fields in parents.items() if fields and int(fields[1]) == parent]
        found += children
        frontier += children
    return found


LOOKS_PART = 4
"""How many times as long as a look the wait for the next one is."""


def within(seconds: float, true: Callable[[], bool]) -> bool:
    """Is it `true` at any time within so many seconds?"""
    began = time.monotonic()
    deadline = began + seconds
    while not true():
        ended = time.monotonic()
        if ended > deadline:
            return False
        # To look at a long trace takes a while, and the run that is waited for needs the core.
        threading.Event().wait(max(0.02, LOOKS_PART * (ended - began)))
        began = time.monotonic()
    return True


def all_gone(pids: Iterable[int], seconds: float = 5.0) -> bool:
    pids = list(pids)
    return within(seconds, lambda: not any(map(alive, pids)))
