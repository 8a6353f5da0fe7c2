"""Checks what servers go back to: nobody undoes an acknowledged update while its copy is there.

It hears which servers are lost, which keeper says that it has no complete copy, and whether all have gone back to the
snapshot. That is right only if a lost server and the next one, its keeper, were away together, or a copy was missing.
The copy of a server is the next one's, and nobody else is asked for it; nor is that one if it is away, too: it may
still run, but what it keeps is older than what the server answered since. A copy is of one state.
A server that was restored answers nobody before it has begun to copy: if it were lost then, nobody would have what it
answered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

PARTS = 3
"""Of a simulated server's state: its weights, its update rule, and the recount, which is called after its version."""
Process = tuple[str, int]
"""A party's name and its incarnation."""


class RecoveryOracle:
    """Watches the `count` servers of one run. copied: what they answer is copied to the next server first."""

    def __init__(self, broken: Callable[[str], AssertionError], count: int, *, copied: bool) -> None:
        self._broken, self._count, self._copied = broken, count, copied
        self._away: set[int] = set()
        self._without_copy = False
        self._copying: set[Process] = set()

    def lost(self, shard: int) -> None:
        """Notes that the run goes on without a server."""
        self._away.add(shard)

    def ordered(self, shard: int, source: int | None) -> None:
        """Notes an order to restore `shard`, from the copy at server `source` or, for None, from the snapshot."""
        if source in self._away:
            raise self._broken(f"server {shard} is to be restored from server {source}, which was lost, too")

    def keeps_copy(self, shard: int, parts: Collection[str]) -> None:
        """Notes that a copy of `shard` is complete. Raises if parts of an earlier one are in it."""
        if len(parts) > PARTS:
            raise self._broken(f"the copy of server {shard} has parts of two states: {', '.join(sorted(parts))}")

    def asked_for_copy(self, shard: int, keeper: int) -> None:
        """Notes that server `keeper` is asked for the copy of `shard`. Raises if that is not the next server."""
        if keeper != (shard + 1) % self._count:
            raise self._broken(f"server {keeper} is asked for the copy of server {shard}, which another one keeps")

    def has_no_copy(self) -> None:
        """Notes that a keeper has told that it lacks the copy of a lost server."""
        self._without_copy = True

    def back(self, *, rolled_back: bool) -> None:
        """Takes the end of a recovery. `rolled_back`: all servers are what the snapshot says."""
        away, without_copy = self._away, self._without_copy
        self._away, self._without_copy = set(), False
        neighbours = any((shard + 1) % self._count in away for shard in away)
        if self._copied and rolled_back and not neighbours and not without_copy:
            lost = ", ".join(f"server {shard}" for shard in sorted(away))
            raise self._broken(f"all servers went back to the snapshot, though the copy of {lost} was there")

    def copies(self, server: Process) -> None:
        """Notes that a server begins to copy, since all servers are in place."""
        self._copying.add(server)

    def forgets_copies(self, server: Process) -> None:
        """Notes that a server was restored; what it had copied before does not count any more."""
        self._copying.discard(server)

    def answers(self, server: Process) -> None:
        """Takes an answer that leaves a server."""
        if self._copied and server not in self._copying:
            name, incarnation = server
            raise self._broken(f"{name} of incarnation {incarnation} answers, and has not begun to copy its state")
