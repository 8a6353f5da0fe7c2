"""Does the simulator tell the truth? Seconds of live runs against seconds predicted for them.

python benchmarks/prediction.py                                  all of it, in a folder that goes at the end
python benchmarks/prediction.py --runs FOLDER --widths 16        one part: trains what is not in FOLDER yet
python benchmarks/prediction.py --runs FOLDER --page docs/benchmarks-prediction.md        the page of all parts there

Every scheme trains live on three emulated workers and a server, in processes of their own on this machine, for a
number of steps of each worker, once or several times (--repeats); the median counts. Its time is predicted

    configured  from the configuration alone: a step takes --step-ms times the slowdown, on the default network
    probed      from the cluster file of `paceline probe` on this machine, for the same model
    recorded    from the trace of each run of each other scheme; median and worst of these

Wanted: `recorded` and `probed` within 10 % of the measured seconds. How far that is reached is said below the table.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import io
import os
import platform
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

import paceline
from paceline import config as configuration
from paceline.cli.main import main as command_line
from paceline.config import Config
from paceline.launch.local.launcher import LocalHost
from paceline.launch.local.train import Silent
from paceline.observe.runs.summary import SUMMARY, read_summary
from paceline.runtime.simulated import cluster_from_trace as recorded
from paceline.runtime.simulated.setup import SimulationSetup, cluster_of
from paceline.runtime.simulated.simulated_run import VirtualRun
from paceline.sim.cluster.model import Cluster, NetworkSpec
from paceline.sim.cluster.toml_file import load

SCHEMES = ("bsp", "asp", "ssp", "gsp", "esync", "diloco")
WIDTHS = (0.5, 4.0, 16.0)
WORKERS, SLOWDOWN, STEP_MS, STEPS = 3, (1.0, 1.0, 3.0), 10.0, 200
BOUND = 0.1
PROBE_FILE = "probed.toml"


@dataclass(frozen=True)
class Row:
    """Predictions of the runs of one scheme. recorded: seconds from each recording, by its scheme."""

    width: float
    length: int
    scheme: str
    runs: list[float]
    configured: float
    probed: float
    recorded: dict[str, list[float]]

    @property
    def measured(self) -> float:
        """Returns the median seconds of the live runs."""
        return statistics.median(self.runs)

    def error(self, predicted: float) -> float:
        return predicted / self.measured - 1

    @property
    def errors(self) -> list[float]:
        """Returns the errors from recordings of other schemes, the smallest first."""
        others = [self.error(s) for name, found in self.recorded.items() if name != self.scheme for s in found]
        return sorted(others, key=abs)

    def cells(self) -> list[str]:
        probed = f"{100 * self.error(self.probed):+.1f} %" if self.probed else "-"
        return [
            f"{self.length:,}",
            self.scheme,
            f"{self.measured:.2f}" + (f" ({min(self.runs):.2f} to {max(self.runs):.2f})" if len(self.runs) > 1 else ""),
            f"{100 * self.error(self.configured):+.1f} %",
            probed,
            f"{100 * statistics.median(map(abs, self.errors)):.1f} %",
            f"{100 * self.errors[-1]:+.1f} %",
        ]


HEAD = ["parameters", "scheme", "measured s", "configured", "probed", "recorded: median", "worst"]


def config_of(scheme: str, width: float) -> Config:
    values = {
        "run": {"scheme": scheme},
        "cluster": {"workers": WORKERS, "slowdown": SLOWDOWN, "step_ms": STEP_MS},
        "data": {"name": "digits"},
        "model": {"name": "mlp", "width": width},
        "stop": {"epochs": 0, "steps": STEPS},
    }
    return configuration.build(values)


def predicted(scheme: str, width: float, cluster: Cluster, length: int) -> float:
    config = config_of(scheme, width)
    setting = SimulationSetup(config=config, cluster=cluster, timing_only=True, model_length=length)
    return VirtualRun(setting, Silent()).run(leave=False).seconds


def train(runs: Path, widths: tuple[float, ...], names: list[str]) -> None:
    """Makes the runs that are not there yet; a probe of each width comes first."""
    with LocalHost() as host:
        for width in widths:
            folder = runs / f"width-{width:g}"
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / PROBE_FILE).exists():
                probe(folder / PROBE_FILE, width)
            for name in names:
                out, scheme = folder / name, name.partition("-")[0]
                if (out / SUMMARY).exists():
                    continue
                summary = paceline.train(
                    progress=False,
                    host=host,
                    scheme=scheme,
                    out=str(out),
                    workers=WORKERS,
                    slowdown=list(SLOWDOWN),
                    step_ms=STEP_MS,
                    data="digits",
                    model="mlp",
                    width=width,
                    eval_every=60,
                    epochs=0,
                    steps=STEPS,
                )
                print(f"width {width:g}, {name}: {summary.seconds:.2f} s", flush=True)


def probe(file: Path, width: float) -> None:
    """Writes the cluster file of this machine for the model of that width."""
    words = ["probe", "-n", str(WORKERS), "-s", "1", "--slowdown", ",".join(f"{s:g}" for s in SLOWDOWN)]
    words += ["--step-ms", f"{STEP_MS:g}", "--model", "mlp", "--width", f"{width:g}", "--data", "digits"]
    with contextlib.redirect_stdout(io.StringIO()):
        command_line([*words, "--seconds", "40", "--write", str(file)])


def rows_of(folder: Path) -> list[Row]:
    """Returns the rows of one width: its runs, each predicted from all others."""
    width = float(folder.name.removeprefix("width-"))
    found = {scheme: sorted(path.parent for path in folder.glob(f"{scheme}*/{SUMMARY}")) for scheme in SCHEMES}
    made = {scheme: [read_summary(run / SUMMARY) for run in runs] for scheme, runs in found.items() if runs}
    clusters = {scheme: [recorded.cluster(run)[0] for run in found[scheme]] for scheme in made}
    length = next(iter(made.values()))[0].model_length
    as_configured = cluster_of(config_of("bsp", width), NetworkSpec(), lambda: 0.0)
    probed = load(folder / PROBE_FILE) if (folder / PROBE_FILE).exists() else None
    return [
        Row(
            width=width,
            length=length,
            scheme=scheme,
            runs=[summary.seconds for summary in summaries],
            configured=predicted(scheme, width, as_configured, length),
            probed=predicted(scheme, width, probed, length) if probed is not None else 0.0,
            recorded={name: [predicted(scheme, width, on, length) for on in of] for name, of in clusters.items()},
        )
        for scheme, summaries in made.items()
    ]


def print_row(cells: list[str]) -> None:
    print(
        " ".join(f"{cell:>{width}}" for cell, width in zip(cells, (11, 8, 22, 11, 9, 17, 9), strict=True)), flush=True
    )


def matrix(rows: list[Row]) -> list[list[str]]:
    """Returns predicted seconds by measured ones: a line for each recording, a column for each scheme predicted."""
    return [
        [name, *(f"{statistics.median(row.recorded[name]) / row.measured:.2f}" for row in rows)]
        for name in rows[0].recorded
    ]


def verdict(rows: list[Row]) -> str:
    """Returns how many predictions are within the bound, and which is the worst."""
    cells = [
        (row.error(s), row, name)
        for row in rows
        for name, found in row.recorded.items()
        if name != row.scheme
        for s in found
    ]
    worst, row, name = max(cells, key=lambda cell: abs(cell[0]))
    within = sum(abs(error) <= BOUND for error, _, _ in cells)
    text = (
        f"From recordings of another scheme: {within} of {len(cells)} within {100 * BOUND:.0f} %, median "
        f"{100 * statistics.median(abs(error) for error, _, _ in cells):.1f} %, worst {100 * worst:+.1f} % "
        f"({row.scheme} from {name}, {row.length:,} parameters)."
    )
    probed = [(row.error(row.probed), row) for row in rows if row.probed]
    if probed:
        worst, row = max(probed, key=lambda cell: abs(cell[0]))
        within = sum(abs(error) <= BOUND for error, _ in probed)
        text += (
            f" Probed: {within} of {len(probed)}, worst {100 * worst:+.1f} % ({row.scheme}, {row.length:,} parameters)."
        )
    return text


def table(lines: list[list[str]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in (lines[0], ["---"] * len(lines[0]), *lines[1:])]


def write_page(by_width: list[list[Row]], page: Path, conditions: str) -> None:
    rows = [row for some in by_width for row in some]
    machine = (
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, torch {torch.__version__}"
    )
    text = [
        "# Prediction against measurement",
        "",
        "    .venv/bin/python benchmarks/prediction.py --runs FOLDER --widths 16     # a part of a few minutes",
        "    .venv/bin/python benchmarks/prediction.py --runs FOLDER --page docs/benchmarks-prediction.md",
        "",
        *(__doc__ or "").strip().split("\n")[5:],
        "",
        f"{datetime.date.today()}, {machine}{conditions}; mlp on digits, {WORKERS} workers, slowdown "
        f"{', '.join(f'{s:g}' for s in SLOWDOWN)}, {STEP_MS:g} ms, {STEPS} steps each, one server.",
        "",
        *table([HEAD, *(row.cells() for row in rows)]),
        "",
        verdict(rows),
        "",
        "Predicted by measured seconds, for the recordings of each scheme (line, their median) and each scheme that is",
        "predicted (column):",
    ]
    for some in by_width:
        head = [f"{some[0].length:,}", *(row.scheme for row in some)]
        text += ["", *table([head, *matrix(some)])]
    draw(rows, page.parent / "images" / "prediction.png")
    text += ["", "![Predicted by measured seconds of each scheme](images/prediction.png)", ""]
    page.write_text("\n".join(text), encoding="utf-8")


def draw(rows: list[Row], image: Path) -> None:
    """Draws predicted by measured seconds: a point for each recording, a cross for the configuration alone."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.4))
    axes.axhspan(1 - BOUND, 1 + BOUND, color="#bab0ac", alpha=0.4)
    for at, row in enumerate(rows):
        others = [1 + error for error in row.errors]
        axes.plot([at] * len(others), others, "o", color="#f58518", label="recorded" if not at else None)
        axes.plot([at], [row.configured / row.measured], "x", color="#4c78a8", label="configured" if not at else None)
    axes.set_xticks(range(len(rows)), [f"{row.scheme}\n{row.width:g}" for row in rows], fontsize=6)
    axes.set_ylabel("predicted / measured")
    axes.legend(frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(image, dpi=130, bbox_inches="tight")
    pyplot.close(figure)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--runs",
        type=Path,
        help="folder of the runs; those that are there are not made (default: one that goes at the end)",
    )
    parser.add_argument(
        "--widths", default="", help="of the mlp, to train now (default: all, where no --runs are given)"
    )
    parser.add_argument("--schemes", default=",".join(SCHEMES))
    parser.add_argument("--repeats", type=int, default=1, help="runs of each scheme")
    parser.add_argument("--page", type=Path, help="write the figures of all runs there, with a picture")
    parser.add_argument("--conditions", default="", help="of the machine, for the page: quiet, loaded")
    options = parser.parse_args()
    if options.runs is None:
        options.widths = options.widths or ",".join(f"{width:g}" for width in WIDTHS)
    with contextlib.nullcontext(options.runs) if options.runs else TemporaryDirectory() as runs:
        return compare(Path(runs), options)


def compare(runs: Path, options: argparse.Namespace) -> int:
    """Trains what is missing in `runs`, prints what was predicted of each run, and returns the exit code."""
    if options.widths:
        schemes, more = options.schemes.split(","), [f"-{n}" for n in range(2, options.repeats + 1)]
        names = [scheme + number for number in ("", *more) for scheme in schemes]
        train(runs, tuple(map(float, options.widths.split(","))), names)
    folders = sorted(runs.glob("width-*"), key=lambda folder: float(folder.name.removeprefix("width-")))
    by_width = [rows_of(folder) for folder in folders]
    print_row(HEAD)
    for row in (row for some in by_width for row in some):
        print_row(row.cells())
    for some in by_width:
        print(*(" ".join(cells) for cells in matrix(some)), sep="\n")
    rows = [row for some in by_width for row in some]
    print(verdict(rows))
    if options.page:
        write_page(by_width, options.page, f", {options.conditions}" if options.conditions else "")
    return 0 if all(abs(row.errors[-1]) <= BOUND for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
