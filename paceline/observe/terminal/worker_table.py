"""Draws the live table: one row a worker, with a small bar that shows where its time goes; readable on 80 columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paceline.observe.formatting.columns import short_hosts
from paceline.observe.formatting.number_format import accuracy_text, count_text, percent, seconds_text
from paceline.observe.terminal.progress import ProgressSnapshot, WorkerRow

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

ROWS_MAX = 16
"""Workers up to which all are shown."""
ENDS = 5
"""How many of the slowest and of the fastest are shown where not all are."""
CELLS = 12
"""Characters of the bar."""
ACTIVITIES = ("computing", "communicating", "waiting")
"""What a worker's time goes to, in the order of the bar."""
COLOURS = ("green", "blue", "yellow")
"""The colours of these, in the same order."""
BLOCKS = ("█", "▓", "░")
"""One character an activity, so that the bar says the same without colours."""
ASCII_BLOCKS = ("#", "=", ".")
"""The same for terminals without Unicode."""


@dataclass(frozen=True, slots=True)
class _Columns:
    """Says which columns the table has. Those that would say nothing in this run are left out, for narrow terminals."""

    hosts: Mapping[str, str] | None
    """Short names of the hosts, where there are several."""
    slowdown: bool
    hidden: bool
    staleness: bool
    state: bool

    @classmethod
    def of(cls, rows: tuple[WorkerRow, ...]) -> _Columns:
        """Returns the columns that these rows need."""
        hosts = short_hosts([row.host for row in rows])
        return cls(
            hosts=hosts if len(hosts) > 1 else None,
            slowdown=any(row.slowdown != 1 for row in rows),
            hidden=any(row.hidden is not None for row in rows),
            staleness=any(row.staleness_mean is not None for row in rows),
            state=any(row.state for row in rows),
        )


def live_table(snapshot: ProgressSnapshot, *, ascii_only: bool = False) -> RenderableType:
    """Returns the whole table: a headline, how far the run is, and the workers."""
    from rich.console import Group

    parts = [headline(snapshot), _bar_line(snapshot), workers_table(snapshot.workers, ascii_only=ascii_only)]
    return Group(*(part for part in parts if part is not None))


def headline(snapshot: ProgressSnapshot) -> Text:
    """Returns the line with scheme, time, epoch, accuracy and throughput."""
    from rich.text import Text

    line = Text(no_wrap=True, overflow="ellipsis")
    line.append(snapshot.scheme, "bold cyan")
    line.append(f"  {seconds_text(snapshot.elapsed_s)}  epoch {snapshot.epochs:.1f}")
    if snapshot.accuracy is not None:
        line.append(f"  accuracy {accuracy_text(snapshot.accuracy)}", "bold")
    if snapshot.target is not None:
        line.append(f" of {snapshot.target:g}" if snapshot.accuracy is not None else f"  target {snapshot.target:g}")
    line.append(f"  {count_text(snapshot.samples_per_second)} samples/s")
    return line


def _bar_line(snapshot: ProgressSnapshot) -> RenderableType | None:
    """Returns how far the run is; None where its end cannot be foreseen."""
    if snapshot.fraction_done is None:
        return None
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    line = Table.grid(padding=(0, 1, 0, 0))
    left = "" if snapshot.seconds_left is None else f"{seconds_text(snapshot.seconds_left)} left"
    done = min(max(snapshot.fraction_done, 0.0), 1.0)
    line.add_row(ProgressBar(total=1.0, completed=done, width=48), percent(done), left)
    return line


def workers_table(rows: tuple[WorkerRow, ...], *, ascii_only: bool = False) -> Table:
    """Returns a row for each worker; of many, the slowest and the fastest, and one row for all."""
    columns = _Columns.of(rows)
    blocks = ASCII_BLOCKS if ascii_only else BLOCKS
    table = _empty(columns, blocks)
    if len(rows) <= ROWS_MAX:
        for row in rows:
            _add(table, columns, blocks, row)
        return table
    by_speed = sorted(rows, key=lambda row: (row.samples_per_second, row.rank))
    for row in by_speed[:ENDS]:
        _add(table, columns, blocks, row)
    table.add_row(*([""] * (2 if columns.hosts else 1)), f"{len(rows) - 2 * ENDS} more", style="dim")
    for row in by_speed[-ENDS:]:
        _add(table, columns, blocks, row)
    table.add_section()
    _add(table, columns, blocks, everyone(rows), name="all")
    return table


def _empty(columns: _Columns, blocks: tuple[str, ...]) -> Table:
    """Returns the table without rows."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, padding=0, show_edge=False, header_style="dim")
    table.add_column("rank", justify="right", no_wrap=True)
    if columns.hosts:
        table.add_column("host", no_wrap=True, overflow="ellipsis", max_width=14)
    table.add_column("device", no_wrap=True, max_width=12)
    if columns.slowdown:
        table.add_column("slow", justify="right", no_wrap=True)
    table.add_column("steps", justify="right", no_wrap=True, min_width=5)
    table.add_column("smp/s", justify="right", no_wrap=True, min_width=5)
    if not columns.hosts:  # there is no room for both, and percentages say the same
        table.add_column("time", no_wrap=True, min_width=CELLS)
    for name, block, colour in zip(("comp", "comm", "wait"), blocks, COLOURS, strict=True):
        table.add_column(Text(f"{block}{name}", colour), justify="right", no_wrap=True, min_width=5)
    if columns.hidden:
        table.add_column("hidden", justify="right", no_wrap=True)
    if columns.staleness:
        table.add_column("stale", justify="right", no_wrap=True)
    if columns.state:
        table.add_column("state", no_wrap=True, overflow="ellipsis")
    return table


def _add(table: Table, columns: _Columns, blocks: tuple[str, ...], row: WorkerRow, name: str = "") -> None:
    """Adds a row; `name` stands in place of a rank."""
    cells: list[RenderableType] = [name or str(row.rank)]
    if columns.hosts:
        cells.append(columns.hosts.get(row.host, ""))
    cells.append(row.device)
    if columns.slowdown:
        cells.append("" if name else f"x{row.slowdown:.3g}")
    cells += [count_text(row.steps), count_text(row.samples_per_second)]
    if not columns.hosts:
        cells.append(share_bar(row, blocks))
    cells += [percent(getattr(row, activity)) for activity in ACTIVITIES]
    if columns.hidden:
        cells.append("" if row.hidden is None else percent(row.hidden))
    if columns.staleness:
        cells.append(_stale(row))
    if columns.state:
        cells.append(row.state)
    table.add_row(*cells)


def _stale(row: WorkerRow) -> str:
    """Returns mean and largest staleness."""
    if row.staleness_mean is None:
        return ""
    return f"{row.staleness_mean:.1f}" if row.staleness_max is None else f"{row.staleness_mean:.1f}/{row.staleness_max}"


def share_bar(row: WorkerRow, blocks: tuple[str, ...] = BLOCKS) -> Text:
    """Returns the bar of a worker."""
    from rich.text import Text

    bar = Text()
    shares = [getattr(row, activity) for activity in ACTIVITIES]
    for block, colour, width in zip(blocks, COLOURS, cells_of(shares, CELLS), strict=True):
        bar.append(block * width, colour)
    return bar


def cells_of(shares: list[float], cells: int) -> list[int]:
    """Returns whole cells for each share: as many in all as the shares fill, rounded by the largest remainders."""
    exact = [max(0.0, share) * cells for share in shares]
    widths = [int(width) for width in exact]
    spare = min(cells, round(sum(exact))) - sum(widths)
    by_remainder = sorted(range(len(exact)), key=lambda i: widths[i] - exact[i])
    for i in by_remainder[: max(0, spare)]:
        widths[i] += 1
    return widths


def everyone(rows: tuple[WorkerRow, ...]) -> WorkerRow:
    """Returns all workers as one row: sums of what adds up, means of the rest."""
    stale = [row.staleness_mean for row in rows if row.staleness_mean is not None]
    hidden = [row.hidden for row in rows if row.hidden is not None]
    return WorkerRow(
        rank=-1,
        device=str(len(rows)),
        slowdown=1.0,
        steps=sum(row.steps for row in rows),
        samples_per_second=sum(row.samples_per_second for row in rows),
        computing=sum(row.computing for row in rows) / len(rows),
        waiting=sum(row.waiting for row in rows) / len(rows),
        communicating=sum(row.communicating for row in rows) / len(rows),
        hidden=sum(hidden) / len(hidden) if hidden else None,
        staleness_mean=sum(stale) / len(stale) if stale else None,
        staleness_max=max((row.staleness_max for row in rows if row.staleness_max is not None), default=None),
    )
