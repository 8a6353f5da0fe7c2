"""Adapters on two unlike workers: tokens a second and loss of the examples with PEFT, against bsp with equal batches.

python benchmarks/adapters.py [--examples 17_sft,18_peft] [--schemes bsp,asp,esync] [--rounds 1]

Worker 1 is 2.5 times as slow, and its largest batch has 8 sequences, where that of worker 0 has 32. A step of 32 takes
worker 0 100 ms. The base is bsp as a data-parallel library runs it: both take batches of 8, and the fast one waits.
Other rows have `--batch-limits 32,8`. All runs go through each sequence three times, so they train as many tokens; the
loss is that of sentences which nobody has trained. It needs `pip install 'paceline[integrations]'`.

The claim: bsp with those limits and esync are at least 1.3 times as fast as the base, and their losses are not 5 %
above its.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from _verdict import verdict

FASTER_MIN, LOSS_MAX, CLAIMED = 1.3, 1.05, ("bsp", "esync")
EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
BASE = "bsp, equal batches"
LOSS = re.compile(r"^(?:\[worker 0\] )?loss (\S+), of the saved adapters in plain PEFT (\S+)$", re.MULTILINE)


def measured(example: str, scheme: str) -> tuple[float, float]:
    """Returns tokens a second, and the loss; the adapters that were saved have the same."""
    equal = scheme == BASE
    more = ["--step-ms", "25"] if equal else ["--step-ms", "100", "--batch-limits", "32,8"]
    with tempfile.TemporaryDirectory() as folder:
        script = [sys.executable, "-W", "ignore", str(EXAMPLES / f"{example}.py"), *(["8"] if equal else [])]
        words = ["--schemes", scheme.partition(",")[0], "--workers", "2", "--slowdown", "1,2.5", *more]
        done = subprocess.run(
            [sys.executable, "-m", "paceline", "race", *words, "--out", f"{folder}/race", "--", *script],
            cwd=folder, capture_output=True, text=True, check=False, timeout=600,
        )  # fmt: skip
        summaries = list(Path(folder).glob("race/*/summary.json"))
        found = LOSS.search("".join(path.read_text() for path in Path(folder).glob("race/*/logs/worker-0.log")))
        if done.returncode or not summaries or found is None:
            raise SystemExit(f"{example}, {scheme}: {done.stderr.strip() or done.stdout.strip()}")
        assert found[1] == found[2], "the adapters that were saved have another loss"
        summary = json.loads(summaries[0].read_text())
    return summary["samples"] / summary["seconds"], float(found[1])


def main() -> int:
    """Prints a line for each example and scheme; returns 1 if the claim does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", default="17_sft,18_peft")
    parser.add_argument("--schemes", default="bsp,asp,esync")
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    short = []
    for example in options.examples.split(","):
        rows = {}
        for scheme in (BASE, *options.schemes.split(",")):
            rounds = [measured(example, scheme) for _ in range(options.rounds)]
            rows[scheme] = speed, loss = tuple(statistics.median(values) for values in zip(*rounds, strict=True))
            faster, above = speed / rows[BASE][0], loss / rows[BASE][1]
            text = f"{speed:6.0f} tokens/s  {faster:.2f} times the base  loss {loss:.3f}, {above - 1:+.1%}"
            print(f"{example:<8}  {scheme:<18}  {text}", flush=True)
            if scheme in CLAIMED and (above > LOSS_MAX or faster < FASTER_MIN):
                short.append(f"{example} {scheme}")
    claim = f"{' and '.join(CLAIMED)} at least {FASTER_MIN} times as fast as bsp with equal batches, with its loss"
    return verdict(f"{claim}, but {', '.join(short)}" if short else claim, not short)


if __name__ == "__main__":
    raise SystemExit(main())
