"""Says what lost servers can be replaced from in a run of this recipe, and what that costs.

    --ack     servers  a server is lost
    memory    any      all go back to the newest snapshot; without one the run ends
    replica   2 or     it goes on from the copy on the next server, and nothing is undone; if that is lost too, all
              more     go back to the newest snapshot

Some schemes cannot go back, and of some a copy is not enough (`paceline.core.fault_tolerance.server_replacement`). This
module does without torch, since the coordinator asks it.
"""

from __future__ import annotations

from paceline.core.coordination import control_messages as control
from paceline.core.fault_tolerance.server_replacement import why_not_copied, why_not_replaced
from paceline.runtime.spec.job_spec import Recipe

NEVER = "it has no snapshot (--snapshot-every 0)"
"""The reason where nobody asked for snapshots."""


def refuses(recipe: Recipe, servers: int, *, by_rows: bool) -> str:
    """Returns why a run cannot go on with another server in the place of a lost one; "" when it can."""
    if recipe.store:
        return "keys and values are in no snapshot"
    why = why_not_replaced(recipe.make_scheme(), servers)
    return why or ("its tables of rows are in no snapshot" if by_rows else "")


class SnapshotPolicy:
    """Decides about the snapshots of one run. `every_s`: seconds between two snapshots; 0 for none. `copies`: servers
    keep copies, too."""

    def __init__(self, every_s: float, *, copies: bool = False) -> None:
        self._every_s, self.copies = every_s, copies
        self.note = ""

    def refuses(self, ready: control.Ready, servers: int) -> str:
        """Returns why nothing can be kept; "" when something can. It sets `note`, the line for the user, as well."""
        recipe = Recipe.from_json(ready.optimizer)
        partly = why_not_copied(recipe.make_scheme()) if self.copies else ""
        self.copies = self.copies and not partly
        kept = self._every_s or self.copies
        nothing = "; ".join(filter(None, (partly, NEVER)))
        why = refuses(recipe, servers, by_rows=ready.by_rows) if kept else nothing
        if servers:
            costs = f"costs at most the updates of the last {self._every_s:g} s" + (f"; {partly}" if partly else "")
            if self.copies:
                costs = "costs nothing: what it answers is copied to the next server first"
            self.note = f"a lost server {f'ends the run: {why}' if why else costs}"
        return why
