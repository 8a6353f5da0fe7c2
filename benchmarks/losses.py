"""Every scheme live on 3 workers, 7 of which are killed (SIGKILL) and one stopped for 8 s: the run ends as it should.

One run of `paceline train --checkpoint-every 1` a scheme on this machine. When whom is killed or stopped follows from
--seed; a loss waits for a moment at which another worker trains, since with nobody left the run is over. Lost workers
are started again (--restarts 7). Then a short run goes on from the checkpoints that the first one has left.

Claims, for each scheme: the process ends within 5 s of --seconds, with exit code 0; all numbers of the last model are
finite; there is a summary; the newest checkpoint can be resumed, and training goes on. Exit code 1 when one fails. The
seconds after the end contain the drawing of curve.png: 1 s on a quiet machine, 5 s with a load of 10 on two cores.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import math
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from _processes import by_name, training
from _verdict import verdict
from safetensors.numpy import load_file

import paceline.schemes  # noqa: F401  enters them into the registry
from paceline.core.scheme import names
from paceline.runtime.run_folder.status_file import read_status

WORKERS, KILLS, STOP_SECONDS = 3, 7, 8.0
LATE_SECONDS = 5.0  # after --seconds; the bar
GIVE_UP_SECONDS = 60.0  # after --seconds: nobody waits longer for the end
WORDS = {"hybrid": ("--hybrid.phases", "bsp until 300 steps; asp")}
"""Of schemes whose defaults would not show what is asked here."""


@dataclass(frozen=True)
class Fault:
    """`at` seconds after training has begun; `first`: the worker that it hits, unless that one is away."""

    at: float
    first: int
    stop: bool = False


def plan(seed: int, seconds: float) -> list[Fault]:
    """Kills all over the run, and a stop that ends before the run does."""
    draw = random.Random(seed)
    each = (seconds - 1.0) / KILLS
    kills = [Fault(0.5 + each * (i + draw.uniform(0.1, 0.9)), draw.randrange(WORKERS)) for i in range(KILLS)]
    stop = Fault(draw.uniform(0.1, 0.9) * max(0.0, seconds - STOP_SECONDS - 1.0), draw.randrange(WORKERS), stop=True)
    return sorted([*kills, stop], key=lambda fault: fault.at)


class Faults(threading.Thread):
    """Carries out the plan on the run whose process is `root`, from `began` on."""

    def __init__(
        self, faults: list[Fault], root: int, out: Path, began: float, until: float, *, workers: int = WORKERS
    ) -> None:
        super().__init__(daemon=True)
        self._workers = workers
        self._faults, self._root, self._out, self._began, self._until = faults, root, out, began, until
        self._stopped: tuple[int, int, float] | None = None  # rank, process, until when
        self._over = threading.Event()
        self.done: list[str] = []

    def run(self) -> None:
        for fault in self._faults:
            self._wait_until(fault.at)
            while self._now() < self._until and not self._over.is_set() and not self._carry_out(fault):
                self._wait_until(self._now() + 0.1)
        self._wait_until(math.inf)

    def end(self) -> None:
        self._over.set()
        self.join()
        self._wake()

    def _carry_out(self, fault: Fault) -> bool:
        """Was there somebody to hit?"""
        there = by_name(self._root)
        training = self._training(there)
        stopped = self._stopped[0] if self._stopped else None
        for rank in ((fault.first + i) % self._workers for i in range(self._workers)):
            pid = there.get(f"pace worker {rank}")
            if pid is None or rank == stopped or not training - {rank, stopped}:
                continue
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP if fault.stop else signal.SIGKILL)
                if fault.stop:
                    self._stopped = rank, pid, self._now() + STOP_SECONDS
                self.done.append("stop" if fault.stop else "kill")
                return True
        return False

    def _training(self, there: dict[str, int]) -> set[int]:
        """Workers that the run knows by the processes they have now."""
        parties = [of for of in read_status(self._out).parties if of.party.startswith("worker ")]
        known = [of for of in parties if of.state == ("returned" if of.incarnation else "joined")]
        return {int(of.party.split()[1]) for of in known if there.get(f"pace {of.party}") == of.pid}

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _wait_until(self, at: float) -> None:
        while not self._over.is_set() and self._now() < at:
            if self._stopped and self._now() >= self._stopped[2]:
                self._wake()
            self._over.wait(min(0.1, max(0.0, at - self._now())))

    def _wake(self) -> None:
        if self._stopped and self._stopped[1] in by_name(self._root).values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._stopped[1], signal.SIGCONT)
        self._stopped = None


@dataclass(frozen=True)
class Outcome:
    faults: str
    late_s: float
    code: int | None
    wrong: str


def one(scheme: str, out: Path, seconds: float, seed: int) -> Outcome:
    """A run with losses, and one that goes on from what it has left."""
    # auto may leave means to the workers, and then every loss ends the run
    words = ("--scheme", scheme, "--workers", str(WORKERS), "--allreduce", "servers", *WORDS.get(scheme, ()))
    more = ("--checkpoint-every", "1", "--restarts", str(KILLS))
    with training(out, *words, *more, seconds=seconds) as run:
        began = training_began(run)
        faults = Faults(plan(seed, seconds), run.pid, out, began, seconds)
        faults.start()
        said: list[str] = []
        reader = threading.Thread(target=lambda: said.extend(run.stderr or ()), daemon=True)
        reader.start()
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(seconds + GIVE_UP_SECONDS - (time.monotonic() - began))
        late, code = time.monotonic() - began - seconds, run.poll()
        faults.end()
        if code is None:
            run.kill()
    reader.join()
    wrong = [f"exit code {code}: {said[-1].strip() if said else ''}"] if code else []
    wrong += ["never ended"] if code is None else [f"ended {late:.1f} s late"] if late > LATE_SECONDS else []
    wrong += left_behind(out)
    wrong += resumed(out, words) if not wrong else []
    done = f"{faults.done.count('kill')} kills, {faults.done.count('stop')} stop"
    return Outcome(done, late, code, "; ".join(wrong))


def training_began(run: subprocess.Popen[str]) -> float:
    """When training began: the first line of its progress says how long ago that was."""
    assert run.stderr is not None
    for line in run.stderr:
        if found := re.match(r"\[\w+\]\s+([\d.]+) s", line):
            return time.monotonic() - float(found[1])
    raise SystemExit("the run did not get under way")


def left_behind(out: Path) -> list[str]:
    """What is wrong with it."""
    wrong = []
    if not (out / "summary.json").exists():
        wrong.append("no summary")
    if not (out / "model.safetensors").exists():
        wrong.append("no model")
    elif not all(math.isfinite(float(abs(v).sum())) for v in load_file(out / "model.safetensors").values()):
        wrong.append("a model that is not finite")
    if not list(out.glob("checkpoints/*/manifest.json")):
        wrong.append("no checkpoint")
    return wrong


def resumed(out: Path, words: tuple[str, ...]) -> list[str]:
    """What is wrong with going on."""
    again = out.with_name(out.name + "-resumed")
    with training(again, *words, "--resume", str(out), seconds=2.0) as run:
        said = run.communicate(timeout=120)[1]
    if run.returncode:
        return [f"resumed, exit code {run.returncode}: {said.strip().splitlines()[-1]}"]
    if "resumes checkpoint" not in said:
        return ["resumed from nothing"]
    summary = json.loads((again / "summary.json").read_text())
    return [] if sum(of["steps"] for of in summary["workers"]) > 0 else ["resumed, no step was made"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemes", default="all", help="names with commas (default: all)")
    parser.add_argument(
        "--third",
        choices=("1", "2", "3", "today"),
        help="every third scheme of these, from the first, second or third; today: by the day of the year",
    )
    parser.add_argument("--seconds", type=float, default=24.0, help="of each run (default: 24)")
    parser.add_argument("--seed", type=int, default=1, help="of the losses (default: 1)")
    parser.add_argument("--out", help="keep the runs there (default: nowhere)")
    options = parser.parse_args()
    schemes = sorted(names()) if options.schemes == "all" else options.schemes.split(",")
    if options.third:
        today = datetime.date.today().timetuple().tm_yday % 3 + 1
        schemes = schemes[(today if options.third == "today" else int(options.third)) - 1 :: 3]
    good = 0
    with tempfile.TemporaryDirectory(prefix="paceline-") as name:
        for scheme in schemes:
            found = one(scheme, Path(options.out or name) / scheme, options.seconds, options.seed)
            good += not found.wrong
            load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
            said = found.wrong or "as claimed"
            print(f"{scheme:12} {found.faults}; ended {found.late_s:+.1f} s ({load}); {said}", flush=True)
    claim = f"{good} of {len(schemes)} schemes end as they should with {KILLS} kills and a stop"
    return verdict(claim, good == len(schemes) > 0)


if __name__ == "__main__":
    sys.exit(main())
