"""A worker that lies in every field in turn: does the run reach what an honest one does, and is the liar named?

python benchmarks/liars.py [--workers 4] [--epochs 8] [--robust median] [--only Push.samples,...] [--bound 0.02]

One live run of `paceline train` (processes, two servers, bsp, digits) for each field that a worker can lie in, from its
8th push on: fields of what it sends (Push, Progress, Records, ...) get hostile values, 10^9, -1, 2^60, NaN, infinity,
nonsense; messages that it would not send by itself (Rate, Past, Ask, Want, Aware) come beside its pushes. The claims:
each of these runs ends with exit code 0 and an accuracy within --bound of the honest run's, no server is lost, nobody
but the liar is expelled, and where a claim was beyond its bounds the liar is named in the trace and the log.

The learning rate falls to zero (--schedule cosine). At a constant rate the last model is as good as the last mini-batch
lets it be: of runs whose liar was expelled after 28 to 30 steps those of 118 rounds ended at 0.825 to 0.889, those of
119 at 0.95, and so did runs in which an honest worker was killed at that step.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from _verdict import verdict

HERE = Path(__file__).parent
LIAR = 3
LEASED = ("Push.data", "Past.handed", "Want.samples", "Want.size")
FIELDS = [
    *(f"Push.{name}" for name in ("clock", "samples", "data", "unused", "g")),
    *("Past.handed", "Want.samples", "Want.size", "Ask.samples", "Ask.batch", "Aware.view"),
    *(f"Rate.{name}" for name in ("lr", "momentum", "nesterov", "weight_decay", "beta1", "beta2", "eps", "trust")),
    *(f"Progress.{name}" for name in ("steps", "samples", "exchanges", "bytes_up", "bytes_down", "bytes_shared")),
    *(f"Progress.seconds_{name}" for name in ("computing", "waiting", "communicating", "hidden", "at_batch")),
    *("Progress.steps_before", "Progress.samples_before", "Records.lines", "ReadState.what"),
]


@dataclass
class Outcome:
    accuracy: float
    code: int
    lost: set[str]
    named: bool
    seconds: float

    def fault(self, honest: float, bound: float) -> str:
        if self.code:
            return f"exit code {self.code}"
        if self.lost - {f"worker {LIAR}"}:
            return f"lost: {', '.join(sorted(self.lost))}"
        return f"accuracy {self.accuracy:.3f}" if self.accuracy < honest - bound else ""


def train(out: Path, lie: str, given: argparse.Namespace) -> Outcome:
    leased = lie in LEASED
    words = ["--workers", str(given.workers), "--servers", "2", "--robust", given.robust, "--scheme", "bsp"]
    words += ["--epochs", str(given.epochs), "--schedule", "cosine"]
    words += ["--partition", "queue" if leased else "uniform", "--out", str(out)]
    environment = dict(os.environ)
    if lie:
        (out.parent / "site").mkdir(exist_ok=True)
        (out.parent / "site" / "sitecustomize.py").write_text("import _liar\n")
        environment["PYTHONPATH"] = f"{out.parent / 'site'}:{HERE}"
        environment["PACELINE_LIE"] = f"{LIAR} {lie}"
    began = time.monotonic()
    run = subprocess.run(
        [sys.executable, "-m", "paceline", "train", *words, *given.words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    seconds = time.monotonic() - began
    (out.parent / f"{out.name}.log").write_text(run.stdout + run.stderr)
    summary = out / "summary.json"
    accuracy = json.loads(summary.read_text()).get("test_accuracy") or 0.0 if summary.exists() else 0.0
    written = (out / "trace.jsonl").read_text() if (out / "trace.jsonl").exists() else ""
    trace = [json.loads(line) for line in written.splitlines()]
    lost = {row["party"] for row in trace if row["kind"] == "membership" and row["event"] == "lost"}
    refused = {row["rank"] for row in trace if row["kind"] == "gated" and row["refused"]}
    refused |= {row["rank"] for row in trace if row["kind"] == "decision" and row["verdict"] == "refused"}
    named = f"worker {LIAR}" in run.stdout + run.stderr and refused == {LIAR}
    return Outcome(accuracy, run.returncode, lost, named, seconds)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--robust", default="median")
    parser.add_argument("--only", default="", help="these fields alone, by commas")
    parser.add_argument("--bound", type=float, default=0.02, help="of the accuracy of the honest run")
    parser.add_argument("words", nargs="*", help="further words for paceline train, after --")
    given = parser.parse_args(argv)
    faults = []
    with tempfile.TemporaryDirectory(prefix="liars-") as folder:
        honest = train(Path(folder) / "honest", "", given).accuracy
        print(f"honest: accuracy {honest:.3f}", flush=True)
        for field in given.only.split(",") if given.only else FIELDS:
            got = train(Path(folder) / field, field, given)
            fault = got.fault(honest, given.bound)
            faults += [f"{field}: {fault}"] if fault else []
            expelled = "expelled" if got.lost else "stays"
            named = "named" if got.named else "not named"
            print(
                f"{field:28} accuracy {got.accuracy:.3f}, {named}, {expelled}, {got.seconds:.0f} s {fault}", flush=True
            )
            if fault:
                print((Path(folder) / f"{field}.log").read_text()[-1500:], flush=True)
    return verdict(
        f"{len(faults)} fields in which a lie does harm{': ' if faults else ''}{'; '.join(faults)}", not faults
    )


if __name__ == "__main__":
    sys.exit(main())
