"""Frameworks on uneven workers: seconds of the same loop under each scheme, against bsp.

python benchmarks/integrations.py [--rounds 1] [--frameworks lightning,trainer,accelerate] [--schemes bsp,esync,asp]

Three workers, of which one is three times as slow (`--slowdown 1,1,3 --step-ms 30`), and a server run the examples of
the integrations as they are; the scheme is the command's. Schemes run in turn. All workers together train each sample
once an epoch, so all runs train as many. Twice as fast workers are 2.33 times the speed of the slowest three at best.

The claim: asp and esync are at least 1.9 times as fast as bsp in each framework.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from _verdict import verdict

FASTER_MIN = 1.9
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
FRAMEWORKS = {"lightning": "12_lightning.py", "trainer": "13_trainer.py", "accelerate": "14_accelerate.py"}


def speeds(example: Path, schemes: list[str]) -> dict[str, float]:
    """Samples a second of training, by scheme: one race of all of them."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "race"
        words = ["--workers", "3", "--slowdown", "1,1,3", "--step-ms", "30", "--out", str(out)]
        command = [sys.executable, "-m", "paceline", "race", "--schemes", ",".join(schemes), *words]
        script = [sys.executable, "-W", "ignore", str(example)]
        done = subprocess.run(
            [*command, "--", *script], cwd=folder, capture_output=True, text=True, check=False, timeout=900
        )
        if done.returncode:
            raise SystemExit(f"{example.name}: {done.stderr.strip() or done.stdout.strip()}")
        found = {}
        for scheme in schemes:
            (summary,) = out.glob(f"*{scheme}*/summary.json")
            found[scheme] = float(json.loads(summary.read_text())["samples_per_second"])
        return found


def main() -> int:
    """Prints a line for each framework and scheme; returns 1 if the claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--frameworks", default=",".join(FRAMEWORKS))
    parser.add_argument("--schemes", default="bsp,esync,asp")
    options = parser.parse_args()
    schemes, short = options.schemes.split(","), []
    for framework in options.frameworks.split(","):
        rounds = [speeds(EXAMPLES / FRAMEWORKS[framework], schemes) for _ in range(options.rounds)]
        median = {scheme: statistics.median(one[scheme] for one in rounds) for scheme in schemes}
        for scheme, speed in median.items():
            faster = speed / median[schemes[0]]
            print(f"{framework:<10}  {scheme:<6}  {speed:6.0f} samples/s  {faster:.2f} times {schemes[0]}", flush=True)
            if scheme in ("asp", "esync") and faster < FASTER_MIN:
                short.append(f"{framework} {scheme}")
    claim = f"asp and esync at least {FASTER_MIN} times as fast as bsp"
    return verdict(f"{claim}, but {', '.join(short)}" if short else claim, not short)


if __name__ == "__main__":
    raise SystemExit(main())
