"""One worker of four lies, in each field of each message that its scheme has it send: who is lost, and who is named?

python benchmarks/liars.py [--schemes bsp,sgp] [--only Push.samples,Share] [--quick] [--processes] [--jobs 2]

For each scheme an honest run is recorded first: what its workers send is what the liar lies in, a run for each way to
lie in each field (a cell): numbers beyond their bounds and within them, vectors that are short, long, empty, NaN or
infinite, lists without end, nonsense, and whole messages twice, to the wrong party, or unasked. The claims of a cell:

    the run ends by its own rule, in time
    nobody but the liar is lost, and nobody but the liar has a strike
    where a value was beyond its declared bounds the liar has one, in the trace or in the log of who received it
    where a worker says falsely where it is, the others may wait for it until --timeout ends the run (counted as "stand
    still": docs/fuzzing.md, what liars do not do)
    where the rule is robust (--robust median, marked *) the accuracy is at most --bound below that of the honest run

A cell in which a claim does not hold is tried once more, and counts if it does not hold again: on a busy machine a
wait can take too long. A lie in what a worker sends before training (row `bring-up`) may end the run before it begins,
and without servers any loss of a worker ends the run (docs/reliability.md): there the line that says why it ended names
the liar.

A cell is a run of `paceline train` with threads for processes, in a process of its own. --processes takes real
processes, --quick one way to lie in each class of message. What a cell has written is in --out, if that is given.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _liar import IN_TURN, STRAYS, Liar, Lie, install, ways_to_lie
from _small_rounds import SMALL
from _verdict import verdict

from paceline.core.message import plane_of
from paceline.sim.faults.lying_worker import STANDS_STILL

HERE = Path(__file__).parent
WORKERS, LIAR = 4, 3
CELL_SECONDS, WAIT_SECONDS = 60.0, 10.0
"""A run of a cell is killed after the first; in it nobody waits longer than the second."""
EPOCHS, ROBUST_EPOCHS = 4.0, 12.0
"""A median learns more slowly. Accuracies of runs that have not converged differ by more than a liar can do."""
VARIANTS: dict[str, dict[str, Any]] = {
    "bsp, no servers": {"scheme": "bsp", "servers": 0},
    "localsgd, no servers": {"scheme": "localsgd", "servers": 0},
    "esync, no servers": {"scheme": "esync", "servers": 0},
    "sgp, no servers": {"scheme": "sgp", "servers": 0},
    "bsp, leased samples": {"scheme": "bsp", "partition": "queue"},
    "asp, leased samples": {"scheme": "asp", "partition": "queue"},
}
BRING_UP = "bring-up"
IN_FULL = {"bsp", *VARIANTS, BRING_UP}
"""Rows in which each field of the control plane has cells of its own. These messages are the same under every scheme:
elsewhere the liar lies in all fields of such a class in turn, message by message, from another one on in each row."""
STRIKE = re.compile(r"^(\w+(?: \d+)?): worker (\d+) is refused \(strike", re.MULTILINE)
NOT_LIED_IN = {"Failed", "Beat"}
"""Failed ends the sender; Beat has no field, and says nothing."""


@dataclass
class Row:
    """A scheme, or a variant of one, and what became of its cells. `floor`: the lowest accuracy, and where."""

    name: str
    honest: float = 0.0
    robust: bool = False
    cells: int = 0
    idle: int = 0
    still: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    floor: tuple[float, str] = (1.0, "")


@dataclass(frozen=True)
class Cell:
    row: str
    lie: Lie | None
    is_bring_up: bool = False
    of_control: bool = False


def settings_of(row: str) -> dict[str, Any]:
    return VARIANTS.get(row, {"scheme": "bsp" if row == BRING_UP else row})


def config_of(row: str, out: Path) -> Any:
    """Returns the configuration of a run of that row: digits, until 6 epochs are trained, at a rate that falls."""
    from paceline.config import build

    given = settings_of(row)
    scheme = given["scheme"]
    values: dict[str, dict[str, Any]] = {
        "run": {"scheme": scheme, "seed": 3, "out": str(out)},
        "cluster": {"workers": WORKERS, "servers": given.get("servers", 2), "timeout": WAIT_SECONDS, "restarts": 0},
        "data": {"batch_size": 32, "partition": given.get("partition", "uniform")},
        "model": {"name": "mlp", "width": 0.25},
        "optimizer": {"momentum": 0.9, "lr": 0.05},
        "schedule": {"name": "cosine"},
        "stop": {"epochs": EPOCHS},
        "checkpoint": {"every": 0.0},
    }
    if small := SMALL.get(scheme, [{}])[0]:
        values[scheme] = small
    made = build(values).scheme()
    config = build(values)
    if made.whole_rounds and made.server(config.cluster.servers) is not None:
        config = build({**values, "robust": {"rule": "median"}, "stop": {"epochs": ROBUST_EPOCHS}})
    return config


def warm_up() -> None:
    """Imports all that a run needs, and loads the data, once for all processes that are forked."""
    import torch

    import paceline.runtime.worker.train_loop as train_loop
    from paceline.runtime.supervisor import artifacts

    artifacts.curve = lambda out, path: None  # type: ignore[assignment]  # a figure takes as long as a run
    torch.set_num_threads(1)
    torch.set_num_threads = lambda number: None  # parties that are threads of one process would race for its pool
    train_loop.load_data(config_of("bsp", Path("nowhere")))


def renew_pool() -> None:
    """Lets torch replace the pool that a forked process cannot use: threads that were the first to ask would race."""
    import torch

    torch._C.set_num_threads(1)


def in_threads(row: str, out: Path, lie: Lie | None) -> dict[str, Any]:
    """Makes one run in this process, and returns what it sent, and how it ended."""
    from _ways import train

    liar = Liar(LIAR, lie, WORKERS)
    install(liar)
    config = config_of(row, out)
    found: dict[str, Any] = {"robust": config.robust.rule != "none", "error": "", "accuracy": 0.0}
    try:
        found["accuracy"] = train(config).test_accuracy or 0.0
    except BaseException as error:
        traceback.print_exc()
        found["error"] = str(error) or repr(error)
    ways = {name: (plane_of(cls), ways_to_lie(cls, robust=found["robust"])) for name, cls in liar.classes.items()}
    found |= {"told": liar.told, "beyond": liar.beyond, "sent": liar.sent, "before": liar.before, "ways": ways}
    return found | {"seen": {name: plane_of(type(one.message)) for name, one in sorted(liar.seen.items())}}


def in_processes(row: str, out: Path, lie: Lie | None) -> dict[str, Any]:
    """Makes one run of real processes."""
    from paceline import config as configuration

    config = config_of(row, out)
    site = out.parent / "site"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text("import _liar\n")
    configuration.save(config, out.parent / "config.toml")
    environment = dict(os.environ, PYTHONPATH=f"{site}:{HERE}", PACELINE_LIE=json.dumps([LIAR, WORKERS, str(lie)]))
    command = [
        sys.executable,
        "-m",
        "paceline",
        "train",
        "--config",
        str(out.parent / "config.toml"),
        "--out",
        str(out),
    ]
    run = subprocess.run(command, env=environment, check=False)
    error = "" if run.returncode == 0 else f"exit code {run.returncode}"
    summary = out / "summary.json"
    accuracy = json.loads(summary.read_text()).get("test_accuracy") or 0.0 if summary.exists() else 0.0
    # Whether it has lied is known to that process alone.
    return {"robust": config.robust.rule != "none", "error": error, "accuracy": accuracy, "told": 1, "beyond": False}


def changes_of(out: Path) -> tuple[set[str], set[int]]:
    """Returns who was lost, and who has a strike, by the trace of the run and the logs of its parties."""
    path = out / "trace.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    lost = {row["party"] for row in rows if row["kind"] == "membership" and row["event"] in ("lost", "expelled")}
    refused = {row["rank"] for row in rows if row["kind"] == "gated" and row["refused"]}
    decided = [row for row in rows if row["kind"] == "decision" and row["verdict"] == "refused"]
    refused |= {row["rank"] for row in decided if row["party"] != f"worker {LIAR}"}  # which may say anything
    strikes = STRIKE.findall((out.parent / "log").read_text(errors="replace"))
    return lost, refused | {int(rank) for by, rank in strikes if by != f"worker {LIAR}"}


def in_child(cell: Cell, folder: Path, *, processes: bool) -> int:
    """Forks a process that makes the run of a cell and writes `result.json`; returns its number."""
    folder.mkdir(parents=True)
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        renew_pool()
        run = in_processes if processes else in_threads
        found = run(cell.row, folder / "run", cell.lie)
        lost, refused = changes_of(folder / "run")
        result = {**found, "lost": sorted(lost), "refused": sorted(refused)}
        (folder / "new").write_text(json.dumps(result))
        (folder / "new").rename(folder / "result.json")
    except BaseException as error:
        traceback.print_exc()
        (folder / "result.json").write_text(json.dumps({"error": repr(error), "lost": [], "refused": []}))
    finally:
        os._exit(0)


def results(cells: list[Cell], folder: Path, given: argparse.Namespace) -> Iterator[tuple[Cell, dict[str, Any], Path]]:
    """Makes the runs of all cells, --jobs at a time, and yields what they give as it comes."""
    waiting, running = list(enumerate(cells)), dict[int, tuple[Cell, Path, float]]()
    until = time.monotonic() + given.seconds
    while waiting or running:
        if time.monotonic() > until:
            waiting.clear()
        while waiting and len(running) < given.jobs:
            number, cell = waiting.pop(0)
            name = str(cell.lie).replace("|", " ").replace("/", " ") if cell.lie else "honest"
            at = folder / cell.row.replace(",", "") / f"{number} {name}"
            running[in_child(cell, at, processes=given.processes)] = cell, at, time.monotonic()
        pid, _ = os.waitpid(-1, os.WNOHANG)
        for late, (_, _, began) in running.items():
            if time.monotonic() - began > CELL_SECONDS:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(late, signal.SIGKILL)
        if not pid:
            time.sleep(0.02)
        elif pid in running:
            cell, at, _ = running.pop(pid)
            written = at / "result.json"
            lost, refused = changes_of(at / "run")
            hangs = {"error": f"no end after {CELL_SECONDS:.0f} s", "lost": sorted(lost), "refused": sorted(refused)}
            yield cell, json.loads(written.read_text()) if written.exists() else hangs, at


def cells_of(row: str, honest: dict[str, Any], given: argparse.Namespace) -> list[Cell]:
    """Returns the cells of a row, by what the worker that will lie has sent in the honest run."""
    found: list[Cell] = []
    sent, before = honest["sent"], honest["before"]
    in_full = row in IN_FULL
    for name, (plane, ways) in honest["ways"].items():
        is_bring_up = sent[name] == before[name]
        if name in NOT_LIED_IN or is_bring_up != (row == BRING_UP):
            continue
        after = 0 if is_bring_up else before[name] + (sent[name] - before[name]) // 4
        if plane == "scheme" or in_full:
            lies = [Lie(name, field, how, after) for field, how in ways]
        else:
            lies = [Lie(name, IN_TURN, how, after) for how in dict.fromkeys(how for _, how in ways)]
        strays = [Lie(name, "", how, after) for how in STRAYS[:2]] if row != BRING_UP else []
        if given.quick:
            lies, strays = lies[:1] or strays[:1], []
        found += [
            Cell(row, lie, is_bring_up, plane != "scheme")
            for lie in lies + (strays if plane == "scheme" or in_full else [])
        ]
    if row != BRING_UP and not given.quick:
        others = {name: plane for name, plane in honest["seen"].items() if name not in sent and name not in NOT_LIED_IN}
        found += [
            Cell(row, Lie(name, "", STRAYS[2], 0)) for name, plane in others.items() if plane == "scheme" or in_full
        ]
    only = [part for part in given.only.split(",") if part]
    return [cell for cell in found if not only or any(str(cell.lie).startswith(part) for part in only)]


def fault_of(cell: Cell, got: dict[str, Any], row: Row, bound: float) -> str:
    """Returns which claim does not hold, or ""."""
    accused = set(got["refused"]) - {LIAR}
    lost = set(got["lost"]) - {f"worker {LIAR}"}
    if got["error"]:
        ends_with_it = cell.is_bring_up or settings_of(cell.row).get("servers") == 0
        if ends_with_it and (f"worker {LIAR}" in got["error"] or f"the answer of {LIAR}" in got["error"]):
            return ""
        return got["error"].splitlines()[0][:160]
    if lost:
        return f"lost: {', '.join(sorted(lost))}"
    if accused:
        return f"accused: {', '.join(f'worker {rank}' for rank in sorted(accused))}"
    if got.get("beyond") and not got["refused"] and not got["lost"]:
        return "not named"
    if row.robust and got["accuracy"] < row.honest - bound:
        return f"accuracy {got['accuracy']:.3f}"
    return ""


def take(cell: Cell, got: dict[str, Any], row: Row, at: Path, given: argparse.Namespace) -> None:
    """Counts a cell, and prints a line where it has a fault."""
    row.cells += 1
    row.idle += not got.get("told", 1)
    fault = fault_of(cell, got, row, given.bound)
    what = str(cell.lie).rsplit("|", 1)[0].replace("|", " ")
    if fault and what.split(" ")[0] in STANDS_STILL and ("waited" in fault or "no end" in fault):
        row.still.append(what)
    elif fault:
        row.faults.append(f"{what}: {fault}")
        print(f"  {cell.row}: {what}: {fault}  ({at})", flush=True)
    elif not cell.is_bring_up and not got["error"]:
        row.floor = min(row.floor, (got["accuracy"], what))
        if given.each:
            named = "named" if LIAR in got["refused"] else "not named"
            stays = "expelled" if got["lost"] else "stays"
            print(f"  {cell.row}: {what}: {named}, {stays}, accuracy {got['accuracy']:.3f}", flush=True)


os.environ["OMP_NUM_THREADS"] = "1"  # before torch is imported: threads of one process are not to fight for its pool


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemes", default="", help="these rows alone, by commas")
    parser.add_argument("--only", default="", help="lies that begin so, such as Push or Push.samples, by commas")
    parser.add_argument("--control", action="store_true", help="lies to the coordinator alone")
    parser.add_argument("--quick", action="store_true", help="one way to lie in each class of message")
    parser.add_argument("--processes", action="store_true", help="real processes, one cell in --one-in")
    parser.add_argument("--each", action="store_true", help="a line for each cell")
    parser.add_argument("--one-in", type=int, default=1, help="so many cells, drawn, for each that is tried")
    parser.add_argument("--jobs", type=int, default=2, help="runs at a time")
    parser.add_argument("--seconds", type=float, default=math.inf, help="begin no further run after so many")
    parser.add_argument("--bound", type=float, default=0.02, help="of the accuracy of the honest run")
    parser.add_argument("--out", type=Path, help="an empty folder for what the runs leave")
    given = parser.parse_args(argv)
    from paceline.core.scheme import names

    warm_up()
    rows = (
        given.schemes.split("|" if "|" in given.schemes else ",") if given.schemes else [*names(), *VARIANTS, BRING_UP]
    )
    table = {name: Row(name) for name in rows}
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = given.out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="liars-")))
        cells: list[Cell] = []
        recorded = argparse.Namespace(**{**vars(given), "processes": False})
        for cell, got, at in results([Cell(name, None) for name in rows], folder, recorded):
            row = table[cell.row]
            if got["error"] or got["lost"] or got["refused"]:
                row.faults.append(f"honest run: {got['error'] or got}")
                print(f"  {row.name}: honest run: {got['error'] or got} ({at})", flush=True)
                continue
            row.honest, row.robust = got["accuracy"], got["robust"]
            cells += cells_of(row.name, got, given)
        cells = [cell for cell in cells if cell.of_control or not given.control]
        drawn = random.Random(0)
        cells = [cell for cell in cells if given.one_in == 1 or drawn.randrange(given.one_in) == 0]
        cells.sort(key=lambda cell: cell.of_control)  # what differs from scheme to scheme first
        left, again = len(cells), list[Cell]()
        for cell, got, at in results(cells, folder, given):
            left -= 1
            if fault_of(cell, got, table[cell.row], given.bound):
                again.append(cell)
            else:
                take(cell, got, table[cell.row], at, given)
        for cell, got, at in results(
            again, folder / "again", argparse.Namespace(**{**vars(given), "seconds": math.inf})
        ):
            take(cell, got, table[cell.row], at, given)
    show(list(table.values()), time.monotonic() - began)
    print(f"{left} cells were not reached; {cpu_seconds():.0f} s of CPU for the others", flush=True)
    faults = Counter({row.name: len(row.faults) for row in table.values() if row.faults})
    return verdict(f"{faults.total()} of {sum(row.cells for row in table.values())} lies do harm", not faults)


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def show(rows: list[Row], seconds: float) -> None:
    """Prints the table, as the page has it."""
    print(
        "\n| scheme | cells | do harm | stand still | accuracy, honest | lowest beside a liar |"
        "\n|---|---|---|---|---|---|"
    )
    for row in rows:
        low, where = row.floor
        lowest = f"{low:.3f} ({where})" if where else ""
        robust = " *" if row.robust else ""
        print(
            f"| {row.name}{robust} | {row.cells} | {len(row.faults)} | {len(row.still)} | {row.honest:.3f} | {lowest} |"
        )
    idle = sum(row.idle for row in rows)
    print(f"\n{seconds:.0f} s; in {idle} cells the message was not sent again, so there was no lie", flush=True)


if __name__ == "__main__":
    sys.exit(main())
