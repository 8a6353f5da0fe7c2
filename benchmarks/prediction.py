"""Does the simulator tell the truth? Seconds of live runs against seconds predicted for them.

python benchmarks/prediction.py [--schemes bsp,asp,...] [--seconds 33] [--page docs/benchmarks-prediction.md]

Every scheme trains live on four emulated workers in processes of their own, for so many epochs that it should take
`--seconds`. Its time is predicted twice: from the configuration alone (`configured`: a step takes --step-ms times the
slowdown, the network is the default one), and from the trace of one short run under BSP (`recorded`: what steps really
took, and what an exchange cost; it is never the run that is predicted). The claim: the second is within 15 % of the
measured seconds for every scheme.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

import paceline
from paceline import config as configuration
from paceline.config import Config
from paceline.launch.local.launcher import LocalHost
from paceline.launch.local.train import Silent
from paceline.runtime.simulated import cluster_from_trace as recorded
from paceline.runtime.simulated.setup import SimulationSetup, cluster_of
from paceline.runtime.simulated.simulated_run import VirtualRun
from paceline.sim.cluster.model import Cluster, NetworkSpec

SCHEMES = "bsp,asp,ssp,gsp,esync,localsgd,easgd"
JOB = {
    "workers": 4,
    "slowdown": [1, 1, 2, 4],
    "step_ms": 40,
    "data": "digits",
    "model": "mlp",
    "width": 0.5,
    "eval_every": 3,
}
CALIBRATION_SECONDS = 10
BOUND = 0.15


@dataclass(frozen=True)
class Row:
    scheme: str
    epochs: float
    measured: float
    configured: float
    recorded: float

    def error(self, predicted: float) -> float:
        return predicted / self.measured - 1

    def cells(self) -> list[str]:
        return [
            self.scheme,
            f"{self.epochs:.1f}",
            f"{self.measured:.1f}",
            f"{self.configured:.1f}",
            f"{100 * self.error(self.configured):+.1f} %",
            f"{self.recorded:.1f}",
            f"{100 * self.error(self.recorded):+.1f} %",
        ]


HEAD = ["scheme", "epochs", "measured s", "configured s", "error", "recorded s", "error"]


def config_of(scheme: str, epochs: float) -> Config:
    values = {
        "run": {"scheme": scheme},
        "cluster": {"workers": 4, "slowdown": JOB["slowdown"], "step_ms": JOB["step_ms"]},
        "data": {"name": JOB["data"]},
        "model": {"name": JOB["model"], "width": JOB["width"]},
        "stop": {"epochs": epochs},
    }
    return configuration.build(values)


def predicted(scheme: str, epochs: float, cluster: Cluster, length: int) -> float:
    setting = SimulationSetup(config=config_of(scheme, epochs), cluster=cluster, timing_only=True, model_length=length)
    return VirtualRun(setting, Silent()).run(leave=False).seconds


def live(host: LocalHost, out: Path, scheme: str, **stop: float) -> float:
    summary = paceline.train(progress=False, host=host, scheme=scheme, out=str(out), **JOB, **stop)
    return summary.seconds


def compare(schemes: list[str], seconds: float, folder: Path) -> list[Row]:
    rows = []
    with LocalHost() as host:
        live(host, folder / "calibration", "bsp", epochs=0, seconds=CALIBRATION_SECONDS)
        as_recorded, length = recorded.cluster(folder / "calibration")
        network = as_recorded.network
        print(f"an exchange costs {2 * network.latency_s * 1000:.1f} ms and {network.bandwidth_gbps:.1f} Gbit/s")
        as_configured = cluster_of(config_of("bsp", 1), NetworkSpec(), lambda: 0.0)
        print_row(HEAD)
        for scheme in schemes:
            epochs = round(10 * seconds / predicted(scheme, 10, as_recorded, length), 1)
            row = Row(
                scheme=scheme,
                epochs=epochs,
                measured=live(host, folder / scheme, scheme, epochs=epochs),
                configured=predicted(scheme, epochs, as_configured, length),
                recorded=predicted(scheme, epochs, as_recorded, length),
            )
            rows.append(row)
            print_row(row.cells())
    return rows


def print_row(cells: list[str]) -> None:
    print(" ".join([f"{cells[0]:<10}", *(f"{cell:>12}" for cell in cells[1:])]), flush=True)


def verdict(rows: list[Row]) -> str:
    worst = max(rows, key=lambda row: abs(row.error(row.recorded)))
    median = statistics.median(abs(row.error(row.recorded)) for row in rows)
    holds = "holds" if abs(worst.error(worst.recorded)) <= BOUND else "DOES NOT HOLD"
    return (
        f"From the recorded run: median error {100 * median:.1f} %, worst {100 * worst.error(worst.recorded):+.1f} % "
        f"({worst.scheme}). Claimed: within {100 * BOUND:.0f} %: {holds}."
    )


def write_page(rows: list[Row], page: Path) -> None:
    """The page and, next to it in images/, its figure."""
    image = page.parent / "images" / "prediction.png"
    draw(rows, image)
    table = ["| " + " | ".join(cells) + " |" for cells in [HEAD, ["---"] * len(HEAD), *(row.cells() for row in rows)]]
    machine = (
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, torch {torch.__version__}"
    )
    job = f"{JOB['model']} (width {JOB['width']}) on {JOB['data']}, slowdown {JOB['slowdown']}, {JOB['step_ms']} ms"
    text = [
        "# Prediction against measurement",
        "",
        "    .venv/bin/python benchmarks/prediction.py --page docs/benchmarks-prediction.md",
        "",
        *(__doc__ or "").strip().split("\n")[4:],
        "",
        f"{datetime.date.today()}, {machine}; {job}, one server.",
        "",
        *table,
        "",
        verdict(rows),
        "",
        "![Measured and predicted seconds of each scheme](images/prediction.png)",
        "",
    ]
    page.write_text("\n".join(text), encoding="utf-8")


def draw(rows: list[Row], image: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.4))
    bars = (("measured", "#4c78a8"), ("configured", "#bab0ac"), ("recorded", "#f58518"))
    for offset, (kind, colour) in zip((-0.27, 0.0, 0.27), bars, strict=True):
        label = kind if kind == "measured" else f"predicted, {kind}"
        heights = [getattr(row, kind) for row in rows]
        axes.bar([i + offset for i in range(len(rows))], heights, 0.25, color=colour, label=label)
    axes.set_xticks(range(len(rows)), [row.scheme for row in rows])
    axes.set_ylabel("seconds")
    axes.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(image, dpi=130, bbox_inches="tight")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schemes", default=SCHEMES)
    parser.add_argument("--seconds", type=float, default=38, help="how long a live run should take")
    parser.add_argument("--page", type=Path, help="write the figures there, with a picture")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = compare(options.schemes.split(","), options.seconds, Path(folder))
    print(verdict(rows))
    if options.page:
        write_page(rows, options.page)
    return 0 if all(abs(row.error(row.recorded)) <= BOUND for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
