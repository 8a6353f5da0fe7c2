"""Memory and seconds of `join` for a small part that is trained above a large body that is not.

python benchmarks/frozen_body.py [--megabytes 200 800] [--dtype float32 bfloat16]

Two workers of `paceline launch` join with a body of so many megabytes, equal on both, or drawn by each for itself, so
that worker 1 takes worker 0's. Memory is the peak of the process in join above what it had before, so the fixed part,
what the first join of a process imports and maps, is that of a body of 1 MB.

Claim: a larger body adds at most 64 MB to the fixed part.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from _verdict import verdict

MORE_MB_MAX = 64.0
SCRIPT = """
import os, resource, sys, time
from pathlib import Path

import torch
from torch import nn

import paceline

megabytes, dtype, equal, out = int(sys.argv[1]), getattr(torch, sys.argv[2]), sys.argv[3] == "equal", sys.argv[4]
rank = int(os.environ["PACELINE_RANK"])
torch.set_num_threads(1)
torch.manual_seed(0 if equal else rank)
width = 1024
layers = max(1, round(megabytes * 1e6 / (width * width * dtype.itemsize)))
body = [nn.Linear(width, width, bias=False).to(dtype).requires_grad_(False) for _ in range(layers)]
model = nn.ModuleDict({"body": nn.Sequential(*body), "head": nn.Linear(8, 1)})
peak = lambda: int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024 / 1e6
before, began = peak(), time.monotonic()
pace = paceline.join(model, torch.optim.SGD(model["head"].parameters(), 0.1), scheme="asp")
Path(out, str(rank)).write_text(f"{time.monotonic() - began} {peak() - before} {body[-1].weight.float().sum()}")
pace.close()
"""


def joined(megabytes: int, dtype: str, bodies: str) -> tuple[float, float]:
    """Returns seconds and peak megabytes of a join, the larger ones of both workers."""
    with tempfile.TemporaryDirectory(prefix="paceline-") as folder:
        script = Path(folder) / "join_frozen.py"
        script.write_text(SCRIPT)
        command = [sys.executable, "-m", "paceline", "launch", "-n", "2", "--out", f"{folder}/run", sys.executable]
        words = [str(script), str(megabytes), dtype, bodies, folder]
        subprocess.run([*command, *words], check=True, capture_output=True)
        found = [[float(word) for word in (Path(folder) / str(rank)).read_text().split()] for rank in (0, 1)]
    if found[0][2] != found[1][2]:
        raise SystemExit("the workers have other bodies after join")
    return max(one[0] for one in found), max(one[1] for one in found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[200, 800])
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"])
    job = parser.parse_args()
    print(f"{datetime.date.today()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    fixed = max(joined(1, "float32", bodies)[1] for bodies in ("equal", "other"))
    print(f"fixed part: {fixed:.0f} MB")
    more = []
    for dtype in job.dtype:
        for bodies in ("equal", "other"):
            for megabytes in job.megabytes:
                seconds, grown = joined(megabytes, dtype, bodies)
                more.append(grown - fixed)
                print(f"{dtype:>9}, {bodies} bodies of {megabytes} MB: {seconds:.1f} s, {more[-1]:+.0f} MB", flush=True)
    return verdict(f"at most {MORE_MB_MAX:.0f} MB more (found: {max(more):.0f})", max(more) <= MORE_MB_MAX)


if __name__ == "__main__":
    raise SystemExit(main())
