"""200 real faults in one training run, one every 2 s: `paceline chaos --count 200 --every 2 --baseline`.

Workers are killed, stopped, slowed down and cut off, servers killed and cut off, by a plan drawn from --seed. Then the
same training without faults. Takes about a quarter of an hour.

Claims: the run completes, training never stands still for over 10 s, and the accuracy at the end is within 2 points of
the quiet run's. Exit code 1 when one fails. Nobody else publishes such a test of a training framework.
"""

from __future__ import annotations

import argparse
import subprocess
import sys


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=200, help="faults (default: 200)")
    parser.add_argument("--seed", type=int, default=1, help="of the plan and of the training (default: 1)")
    options, more = parser.parse_known_args()  # any other option of `paceline chaos` follows
    command = [sys.executable, "-m", "paceline", "chaos", "--every", "2", "--baseline"]
    return subprocess.call([*command, "--count", str(options.count), "--seed", str(options.seed), *more])


if __name__ == "__main__":
    sys.exit(main())
