"""What servers that are lost can be replaced from, in a run of this recipe; and what that costs.

Without torch: whoever has to know it holds no vector.
"""

from __future__ import annotations

from paceline.live.protocol import control_messages as control
from paceline.runtime.spec.job_spec import Recipe

NEVER = "it has no snapshot (--snapshot-every 0)"


def refuses(recipe: Recipe, servers: int, *, by_rows: bool) -> str:
    """Why a run cannot go on with another server in the place of a lost one; nothing when it can."""
    if recipe.store:
        return "keys and values are in no snapshot"
    scheme = recipe.make_scheme()
    box = scheme.server(servers)
    if box is None or scheme.uses_mean(servers):
        return f"under {scheme.name} servers carry means, of which workers may have different halves by then"
    if not (box.goes_back and scheme.worker(servers).goes_back):
        return f"{scheme.name} cannot go back to an earlier state in the middle of a run"
    return "its tables of rows are in no snapshot" if by_rows else ""


def not_copied(recipe: Recipe) -> str:
    """Why copies of what a server has updated are not all that it has answered; nothing when they are."""
    scheme = recipe.make_scheme()
    return f"{scheme.name} answers contributions of which no copy knows yet" if scheme.answers_what_no_copy_has else ""


class SnapshotPolicy:
    """This decides about the snapshots of one run. `every_s`: seconds between two snapshots; 0 for none. `copies`:
    servers keep copies, too.
    """

    def __init__(self, every_s: float, *, copies: bool = False) -> None:
        self._every_s, self.copies = every_s, copies
        self.note = ""

    def refuses(self, ready: control.Ready, servers: int) -> str:
        """Why nothing can be kept; nothing when it can. Also says so in `note`."""
        recipe = Recipe.from_json(ready.optimizer)
        partly = not_copied(recipe) if self.copies else ""
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
