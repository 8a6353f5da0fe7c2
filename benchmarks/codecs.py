"""How fast codecs encode and decode on one core, against the bandwidth of memory.

A gradient of --mbytes (100) of random numbers is encoded with its residual and decoded, as a worker and a server do, in
turns with `r += g`, which is what memory can do: it reads two vectors and writes one. Claims: MXNet's two bits encode
at 1.5 GB of gradient a second or more, and decode and are added to the weights at 2 GB/s or more. Exit code 1 when one
fails. The figures of other codecs are for choosing.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from paceline.codec import Codec, Memory, encoders, read

ENCODE_GBPS, APPLY_GBPS = 1.5, 2.0
CLAIMED = "2bit"
PARAMETERS = {"2bit": "(threshold=0.3)", "dgc": "(warmup=0)"}


def seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def measured(codec: Codec, g: np.ndarray, repeats: int) -> dict[str, float]:
    """Medians of the seconds that each part takes, all parts in turn."""
    memory, out = Memory.of(len(g)), np.empty_like(g)
    w, r = torch.zeros(len(g)), torch.zeros(len(g))
    gradient, decoded = torch.from_numpy(g), torch.from_numpy(out)
    data = codec.encode(g, memory)
    assert data is not None
    codec.decode(data, out)  # compiled by now
    parts: dict[str, Callable[[], object]] = {
        "add": lambda: r.add_(gradient),
        "encode": lambda: codec.encode(g, memory),
        "decode": lambda: codec.decode(data, out),
        "apply": lambda: (codec.decode(data, out), w.add_(decoded, alpha=-0.1)),
    }
    took: dict[str, list[float]] = {name: [] for name in parts}
    for _ in range(repeats):
        for name, act in parts.items():
            took[name].append(seconds(act))
    return {name: statistics.median(values) for name, values in took.items()}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbytes", type=float, default=100.0, help="size of the gradient (default: 100)")
    parser.add_argument("--repeats", type=int, default=7, help="of each part; medians are shown (default: 7)")
    parser.add_argument("--codecs", default=",".join(encoders()), help="names separated by commas (default: all)")
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    g = np.random.default_rng(1).standard_normal(int(given.mbytes * 1e6 / 4)).astype(np.float32)
    size = g.nbytes / 1e9
    print(f"{g.nbytes / 1e6:.0f} MB of gradient, one core: GB of it a second (times as long as r += g)")
    print(f"{'codec':<9}{'smaller':>8}{'encode':>16}{'decode':>16}{'decode+apply':>16}{'r += g':>9}")
    kept = True
    for name in given.codecs.split(","):
        codec = read(name + PARAMETERS.get(name, ""))
        assert codec is not None
        t = measured(codec, g, given.repeats)
        cells = [f"{size / t[part]:.2f} ({t[part] / t['add']:.1f})" for part in ("encode", "decode", "apply")]
        figures = "".join(f"{cell:>16}" for cell in cells)
        print(f"{name:<9}{g.nbytes / codec.size(len(g)):>8.1f}{figures}{size / t['add']:>9.2f}")
        if name == CLAIMED:
            kept = size / t["encode"] >= ENCODE_GBPS and size / t["apply"] >= APPLY_GBPS
    verdict = "kept" if kept else "NOT kept"
    print(f"claim: {CLAIMED} encodes at {ENCODE_GBPS} GB/s, decodes and is applied at {APPLY_GBPS}: {verdict}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
