"""How fast codecs encode and decode on one core, against the bandwidth of memory.

python benchmarks/codecs.py [--mbytes 100] [--rounds 7] [--codecs 2bit,topk] [--device cuda]

What is measured is told by `paceline bench codec --help`, which measures the same. Claims: MXNet's two bits encode at
1.5 GB of gradient a second or more, and decode and are added to the weights at 2 GB/s or more. The figures of other
codecs are for choosing. With `--device cuda` the gradient lies on a GPU, whose kernels (Triton) are measured; there is
no claim about them, and nothing to measure without a GPU.
"""

from __future__ import annotations

import argparse
import sys

import torch

from paceline.bench import codec
from paceline.bench.report import conditions, table, write
from paceline.bench.result import floats
from paceline.codec import encoders

CLAIMED = {"2bit: encode": 1.5, "2bit: decode and add": 2.0}
"""GB of gradient a second."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mbytes", type=float, default=100.0, help="size of the gradient (default: 100)")
    parser.add_argument("--rounds", type=int, default=7, help="of each part; medians are shown (default: 7)")
    parser.add_argument("--codecs", default=",".join(encoders()), help="names separated by commas (default: all)")
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where the gradient lies")
    options = parser.parse_args(arguments)
    if options.device == "cuda":
        return on_gpu(options)
    print(f"{conditions()}, {options.mbytes:g} MB of gradient, one core, {options.rounds} rounds")
    figures = list(codec.measure(options.codecs.split(","), floats(options.mbytes), options.rounds))
    print(table(figures))
    if options.json:
        write(options.json, "codec", figures)
    holds = True
    for figure in figures:
        least = CLAIMED.get(figure.what)
        if least:
            speed = figure.nbytes / figure.seconds_median / 1e9
            verdict = "holds" if speed >= least else "DOES NOT HOLD"
            print(f"{figure.what} at {speed:.2f} GB/s, claimed at least {least}: {verdict}")
            holds = holds and speed >= least
    return 0 if holds else 1


def on_gpu(options: argparse.Namespace) -> int:
    if not torch.cuda.is_available():
        print("skipped: there is no GPU here")
        return 0
    print(f"{conditions()}, {torch.cuda.get_device_name()}, {options.mbytes:g} MB of gradient, {options.rounds} rounds")
    figures = list(codec.measure_on_gpu(options.codecs.split(","), floats(options.mbytes), options.rounds))
    print(table(figures))
    if options.json:
        write(options.json, "codec", figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
