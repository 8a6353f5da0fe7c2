"""Simulated seeds without a violation: every scheme under everything that can go wrong (docs/fuzzing.md).

    python benchmarks/fuzz.py                   1,000 seeds; claim: no violation, within 120 s
    python benchmarks/fuzz.py --seeds 20000     claim: no violation; the time is told

One process. Exit code 1 at the first violation, which names its seed, or when 1,000 seeds take longer than 120 s.
"""

from __future__ import annotations

import argparse
import sys
import time

from paceline.cli.main import main as paceline

IN_CI, BOUND_SECONDS = 1000, 120.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=IN_CI, help=f"how many (default: {IN_CI})")
    parser.add_argument("--first", type=int, default=0, help="the first of them (default: 0)")
    options = parser.parse_args()
    began = time.monotonic()
    code = paceline(["fuzz", "--seeds", str(options.seeds), "--first", str(options.first)])
    seconds = time.monotonic() - began
    slow = options.seeds == IN_CI and seconds > BOUND_SECONDS
    late = f", more than {BOUND_SECONDS:g}" if slow else ""
    print(f"{seconds:.0f} s{late}: {'NOT as claimed' if code or slow else 'as claimed'}")
    return 1 if code or slow else 0


if __name__ == "__main__":
    sys.exit(main())
