"""The pictures of docs/observing.md, from simulated runs, which are the same on every machine.

    python -m scripts.observing_pictures [--keep DIR]

Three seeds of four schemes, and data dealt out by class; then `paceline plot` of them. Takes a minute or two. Where
Chromium is installed, the report is photographed too, light and dark.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

from paceline.cli.main import main as paceline

IMAGES = Path(__file__).resolve().parents[1] / "docs" / "images"
CLUSTER = ["--workers", "4", "--slowdown", "1,1,2,8", "--step-ms", "20"]
SEEDS = (0, 1, 2)
ONE = ("target", "throughput", "traffic", "computing", "staleness", "accuracy-exchange", "accuracy-samples")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PAGE = "1100,1500"


def simulate(out: Path, schemes: str, *options: str) -> str:
    if not out.exists() and paceline(["simulate", "--schemes", schemes, *CLUSTER, *options, "--out", str(out)]):
        raise SystemExit(f"{out}: the simulation failed")
    return str(out)


def plot(*words: str) -> None:
    if paceline(["plot", *words]):
        raise SystemExit("the figures failed")


def photograph(report: Path, out: Path, *, dark: bool) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print(f"{out}: no Chromium is installed; skipped")
        return
    scheme = ["--blink-settings=preferredColorScheme=0"] if dark else []
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={PAGE}", *scheme]
    subprocess.run(
        [browser, *flags, f"--screenshot={out}", report.as_uri()], check=True, timeout=120, stderr=subprocess.DEVNULL
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="folder for the runs, used again if they are there")
    keep = parser.parse_args().keep
    with tempfile.TemporaryDirectory() as temporary:
        runs = keep.resolve() if keep else Path(temporary)
        seeds = [
            simulate(runs / f"seed{n}", "bsp,asp,ssp,esync", "--target-accuracy", "0.9", "--seed", str(n))
            for n in SEEDS
        ]
        dealt = [
            simulate(runs / shares, "bsp,asp,esync", "--partition", shares, "--seconds", "4", "--epochs", "0")
            for shares in ("uniform", "class")
        ]
        drawn = runs / "drawn"
        plot(*seeds, "--out", str(drawn), "--report", str(runs / "report.html"))
        plot(*dealt, "--only", "accuracy-time", "--out", str(drawn / "dealt"))
        for name in ("accuracy-time", *ONE):
            shutil.copy(drawn / f"{name}.png", IMAGES / f"plot-{name}.png")
        shutil.copy(drawn / "timeline-ssp.png", IMAGES / "plot-timeline.png")
        shutil.copy(drawn / "dealt" / "accuracy-time.png", IMAGES / "plot-accuracy-dealt.png")
        photograph(runs / "report.html", IMAGES / "report-light.png", dark=False)
        photograph(runs / "report.html", IMAGES / "report-dark.png", dark=True)


if __name__ == "__main__":
    main()
