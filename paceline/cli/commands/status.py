"""`paceline status` shows the state of a run, and of each process: host, steps, when it was last heard from."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from paceline.cli.support.find_run import add_run, elsewhere, found, where_it_is_led, who_leads
from paceline.cli.support.options import Parser
from paceline.observe.formatting.columns import columns, short_hosts
from paceline.observe.formatting.number_format import counted, seconds_text
from paceline.runtime.run_folder.status_file import PartyStatus, Status, read_status

EPILOG = """examples:
  paceline status                     the newest run below runs/
  paceline status runs/a
  paceline status a --json            for a program

RUN is the folder that --out named, or its name below runs/. `heard` is how long ago something came of a party: of a
worker its progress, of a server an update, of the evaluator an accuracy; what that one is at stands below the table.
The exit code is 0 while a run goes on or when it ended well, 1 when it failed or its process was killed.
"""
GONE = "gone"
HEADINGS = ("party", "state", "host", "pid", "device", "incarnation", "steps", "heard")


@where_it_is_led
def main(arguments: list[str]) -> int:
    """Prints the state of a run; returns 1 if it failed or its leader is gone, else 0."""
    parser = Parser(prog="paceline status", usage="paceline status [RUN] [--json]", description=__doc__, epilog=EPILOG)
    add_run(parser)
    parser.add_argument("--json", action="store_true", help="print everything as one JSON document")
    options = parser.parse_all(arguments)
    folder = found(options.run)
    status = read_status(folder)
    state = state_of(status)
    if options.json:
        print(msgspec.json.encode({"folder": str(folder), "now": state, **msgspec.to_builtins(status)}).decode())
    else:
        print("\n".join(text(folder, status, time.time())))
    return 1 if state in ("failed", GONE) else 0


def state_of(status: Status) -> str:
    """Returns the state that the run wrote last; GONE where its leader ended without writing another.

    A run that is led from another machine is believed: its process cannot be looked for here.
    """
    return GONE if not (status.ended or status.here or elsewhere(status)) else status.state


def text(folder: Path, status: Status, now: float) -> list[str]:
    """Returns the lines that are shown; `now` is in seconds since 1970."""
    state, age = state_of(status), max(0.0, now - status.written)
    begun = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(status.started))
    lines = [
        f"{folder}: {status.scheme}, {_told(status, state, age)}",
        f"started {begun} by {who_leads(status)}: {shlex.join(status.command)}",
    ]
    if status.parties:
        over = status.ended or state == GONE
        hosts = short_hosts(party.host for party in status.parties)
        rows = [_row(party, hosts, None if over else age) for party in status.parties]
        lines.append(columns(HEADINGS, rows, last=">", words=("state", "host", "device")))
        lines += [f"the {party.party} {party.doing}" for party in status.parties if party.doing and not over]
    return lines


def _told(status: Status, state: str, age: float) -> str:
    """Returns the state in words, with how long ago it was reached if the run is over."""
    if state == GONE:
        return (
            f"gone: process {status.pid} was ended without a word, {seconds_text(age)} ago or less after {status.state}"
        )
    if status.ended:
        ago = f"{seconds_text(age)} ago"
        return f"{state} {ago}" + (f": {status.reason}" if status.reason else "")
    far = f"; led from {status.host}, which this machine cannot see" if elsewhere(status) else ""
    return f"{state}, {counted(len(status.parties), 'process')}{far}"


def _row(party: PartyStatus, hosts: Mapping[str, str], age: float | None) -> tuple[str, ...]:
    """Returns a party's row of the table, one text for each of HEADINGS.

    age: seconds since the status file was written, which are added to how long a party has been silent by then. None
    for a run that is over, whose parties are silent anyway.
    """
    heard = "" if age is None else f"{seconds_text(party.heard_s + age)} ago"
    steps = str(party.steps) if party.party.startswith("worker") else ""
    incarnation = str(party.incarnation + 1)
    return (
        party.party,
        party.state,
        hosts.get(party.host, ""),
        str(party.pid),
        party.device,
        incarnation,
        steps,
        heard,
    )
