"""Runs every command of README.md as it is written, one after the other in an empty folder. `make readme` runs it.

    python -m scripts.readme_commands [PAGE ...] [--only TEXT] [--list]

A command is an indented line that begins with a program. Where the page has a placeholder, such as runs/... or DIR, the
newest run or a folder is put in its place (FILLED_IN). The folder has what a clone has that commands name: examples/,
the Makefile and .venv; and a file `hosts` if the page shows one. What needs other machines, or takes an hour, is passed
over and named with its reason (PASSED_OVER). What runs until Ctrl-C gets it after a while (INTERRUPTED).

A command passes if it ends with exit code 0, within LIMIT_S and without a traceback. One that the page shows with its
output (`$ paceline ...`) has to print that output, whatever its exit code is. The exit code is 1 if one does not pass.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 900.0
PROGRAM = re.compile(
    r"(\$ )?(paceline\b(?!:)|(python|make|pip|ssh|\.venv/bin/\w+|torchrun|mpirun|srun|sbatch|tensorboard|cp|export)\b"
    r"|[A-Z_]+=)"
)

PASSED_OVER = (
    ("make test", "the tests themselves"),
    ("make check", "the tests themselves"),
    ("make bench", "takes hours"),
    ("benchmarks/", "benchmarks have figures of their own, and take long"),
    ("paceline bench", "benchmarks have figures of their own, and take long"),
    ("-H hosts -s 2", "needs two machines that can be logged in to"),
    ("-H hosts paceline", "needs two machines that can be logged in to"),
    ("-H hosts python", "needs two machines that can be logged in to"),
    ("--launcher", "needs that engine"),
    ("sbatch", "needs Slurm"),
    ("srun", "needs Slurm"),
    ("mpirun", "needs Open MPI"),
    ("redis://", "needs a Redis"),
    ("_REDIS_", "needs a Redis"),
    ("DMLC_", "needs a script of one's own"),
    ("my_train.py", "needs a script of one's own"),
    ("hooks:WandB", "needs an account at Weights & Biases"),
    ("http://localhost:4318", "needs an OpenTelemetry collector"),
    ("train ... ", "is cut short"),
    ("pip install", "needs the network"),
    ("ssh -L", "needs another machine"),
    ("mine.toml", "needs a file of one's own"),
    ("my.toml", "needs a file of one's own"),
    ("tensorboard --logdir", "goes on for ever"),
    ("paceline summary seed0", "needs those runs"),
    ("paceline fuzz --seeds 20000", "takes an hour"),
)
"""Part of a command, and why it is passed over; a dry run is not."""

INTERRUPTED = (("paceline watch", 8.0), ("paceline logs -f", 20.0))
"""Part of a command that goes on until Ctrl-C, and after how many seconds it gets that."""


@dataclass(frozen=True, slots=True)
class Command:
    page: str
    line: int
    text: str
    output: tuple[str, ...] = ()  # that the page shows; nothing where it shows none

    @property
    def passed_over(self) -> str:
        """Why it is passed over, if it is."""
        if "--dry-run" in self.text:
            return ""
        return next((why for part, why in PASSED_OVER if part in self.text), "")

    @property
    def interrupted_after_s(self) -> float:
        """0 for one that ends by itself."""
        return next((seconds for part, seconds in INTERRUPTED if part in self.text), 0.0)


@dataclass(frozen=True, slots=True)
class Result:
    problem: str
    seconds: float
    printed: str


def commands(page: Path) -> Iterator[Command]:
    """The commands of a page, without comments; lines that end in a backslash are one command."""
    lines = page.read_text(encoding="utf-8").splitlines()
    at = 0
    while at < len(lines):
        number, line = at + 1, lines[at]
        at += 1
        if not line.startswith("    ") or not PROGRAM.match(line.strip()):
            continue
        while line.endswith("\\"):
            line = line[:-1] + lines[at].strip()
            at += 1
        output = []
        while line.startswith("    $ ") and at < len(lines) and lines[at].startswith("    "):
            output.append(lines[at].removeprefix("    "))
            at += 1
        text = re.sub(r"\s\[[^\]]*\]", "", line.strip().removeprefix("$ "))  # what is optional
        yield Command(page.name, number, _without_comment(text), tuple(output))


def _without_comment(text: str) -> str:
    return re.split(r"\s+#\s|\s{3,}", text)[0]


def hosts_file(page: Path) -> str:
    """The hosts file that the page shows, or nothing."""
    found = re.search(r"\n\n((?:    \S+ +slots=.*\n)+)", page.read_text(encoding="utf-8"))
    return "".join(line.strip() + "\n" for line in found[1].splitlines()) if found else ""


# ---- what is put in the place of placeholders ----------------------------------------------------------------
def newest_runs(folder: Path) -> list[str]:
    """Live runs that are over, the newest first."""
    found = [path.parent for path in folder.glob("runs/**/summary.json")]
    found = [run for run in found if json.loads((run / "summary.json").read_text())["driver"] == "live"]
    found.sort(key=lambda run: (run / "summary.json").stat().st_mtime, reverse=True)
    return [str(run.relative_to(folder)) for run in found]


def filled_in(text: str, folder: Path) -> str:
    """The command with the newest runs, and folders, in the place of its placeholders."""
    runs = [*newest_runs(folder), "runs/none", "runs/none"]
    for placeholder, value in (
        ("--data-dir DIR", "--data-dir data"),
        ("--out DIR", "--out again"),
        ("runs/A runs/B", f"{runs[1]} {runs[0]}"),
        ("runs/...", runs[0]),
        ("runs/20260101-120000-bsp", runs[0]),
    ):
        text = text.replace(placeholder, value)
    return text


def make_folder(folder: Path, hosts: str) -> None:
    """What a clone has that commands name, and data in the form of Fashion-MNIST."""
    for name in ("examples", "Makefile", "pyproject.toml", ".venv"):
        (folder / name).symlink_to(ROOT / name)
    if hosts:
        (folder / "hosts").write_text(hosts, encoding="utf-8")
    (folder / "home").mkdir()
    (folder / "data").mkdir()
    random = np.random.default_rng(0)
    for name, samples in (("train", 2000), ("t10k", 500)):
        labels = random.integers(0, 10, samples, dtype=np.uint8)
        images = random.integers(0, 60, (samples, 28, 28), dtype=np.uint8)
        for image, label in zip(images, labels, strict=True):
            image[2 * label : 2 * label + 6] += 150
        for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
            head = struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
            (folder / "data" / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(head + array.tobytes(), 1))


# ---- running -------------------------------------------------------------------------------------------------
def run(command: Command, folder: Path) -> Result:
    """Runs it there, with no other variables than a new user's shell is sure to have."""
    environment = {"PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}", "HOME": str(folder / "home")}
    began = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as printed:
        process = subprocess.Popen(
            ["bash", "-c", f"exec {text}" if not _compound(text := filled_in(command.text, folder)) else text],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        problem = _end_of(process, command.interrupted_after_s)
        printed.seek(0)
        text = printed.read()
    if command.output:
        problem = "" if text.splitlines() == list(command.output) else f"it prints {text!r}"
    elif "Traceback (most recent call last)" in text:
        problem = problem or "it prints a traceback"
    return Result(problem, time.monotonic() - began, text)


def _compound(text: str) -> bool:
    """Is it more than one program with its arguments, for the shell?"""
    return bool(re.match(r"[A-Z_]+=|export", text)) or any(word in ("&&", "|", "&", ";", ">") for word in text.split())


def _end_of(process: subprocess.Popen[bytes], interrupted_after_s: float) -> str:
    """Waits for it; returns what was wrong with its end."""
    fine = {0}
    try:
        if interrupted_after_s:
            try:
                process.wait(interrupted_after_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGINT)
                fine = {0, 130}
        code = process.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        return f"it has not ended after {LIMIT_S:.0f} s"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return "" if code in fine else f"exit code {code}"


def main(arguments: Sequence[str]) -> int:
    words = list(arguments)
    only = words.pop(words.index("--only") + 1) if "--only" in words else ""
    pages = [Path(word) for word in words if not word.startswith("--")] or [ROOT / "README.md"]
    wanted = [command for page in pages for command in commands(page) if only in command.text]
    if "--list" in words:
        print(*(f"{c.page}:{c.line}  {c.text}" for c in wanted), sep="\n")
        return 0
    failed = 0
    with tempfile.TemporaryDirectory(prefix="paceline-readme-") as name:
        folder = Path(name)
        make_folder(folder, next(filter(None, map(hosts_file, pages)), ""))
        for command in wanted:
            if command.passed_over:
                print(f"passed over        {command.text}  ({command.passed_over})", flush=True)
                continue
            result = run(command, folder)
            failed += bool(result.problem)
            print(f"{'FAILED' if result.problem else 'ran':<8}{result.seconds:6.1f} s  {command.text}", flush=True)
            if result.problem:
                print(f"  {command.page}:{command.line}: {result.problem}\n{result.printed[-3000:]}", flush=True)
    passed_over = sum(bool(command.passed_over) for command in wanted)
    ran = len(wanted) - failed - passed_over
    print(f"{len(wanted)} commands: {ran} ran, {failed} failed, {passed_over} passed over")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
