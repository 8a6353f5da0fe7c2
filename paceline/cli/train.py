"""`paceline train`: one model, one scheme, uneven workers, this machine."""

from __future__ import annotations

import sys

from paceline.cli.options import Parser, add_settings, config_of
from paceline.cli.running import Interrupted, run
from paceline.launch.local import LocalHost
from paceline.launch.run import conductor_of, new_folder
from paceline.observe import text
from paceline.observe.progress import make_view
from paceline.observe.summary import Summary

EPILOG = """examples:
  paceline train                                              4 workers, handwritten digits, ESync
  paceline train --scheme ssp --ssp.staleness 3 --slowdown 1,1,2,8 --step-ms 20
  paceline train --data fashion-mnist --data-dir DIR --model lenet --target-accuracy 0.8
  paceline train --scheme bsp --servers 0 --mean gloo         all-reduce instead of servers

The run leaves config.toml, trace.jsonl, summary.json, model.safetensors and curve.png in --out; --config reads such a
config.toml again. Ctrl-C ends the run and keeps what there is; once more ends it at once.
"""


def main(arguments: list[str]) -> int:
    parser = Parser(prog="paceline train", description=__doc__, epilog=EPILOG)
    add_settings(parser)
    config = new_folder(config_of(parser.parse_all(arguments)))
    with LocalHost() as host:
        try:
            summary = run(conductor_of(config, host.crew(), make_view(sys.stderr)))
        except Interrupted as end:
            if end.summary:
                print(_report(end.summary, config.run.out))
            print("paceline: interrupted", file=sys.stderr)
            return end.exit_code
    print(_report(summary, config.run.out))
    return 0


def _report(s: Summary, out: str) -> str:
    accuracy = "no evaluation" if s.test_accuracy is None else f"test accuracy {text.accuracy_text(s.test_accuracy)}"
    reached = ""
    if s.target_accuracy is not None:
        reached = (
            f", target {s.target_accuracy:g} missed"
            if s.seconds_to_target is None
            else f", target {s.target_accuracy:g} reached after {text.seconds_text(s.seconds_to_target)}"
        )
    shares = s.shares
    return (
        f"{s.scheme}: {accuracy}{reached}; {text.seconds_text(s.seconds)}, {s.samples} samples, "
        f"{s.samples_per_second:.0f} samples/s (ended by: {s.reason})\n"
        f"time of the workers: computing {text.percent(shares.computing)}, waiting {text.percent(shares.waiting)}, "
        f"communicating {text.percent(shares.communicating)}\n"
        f"left in {out}: config.toml trace.jsonl summary.json model.safetensors curve.png"
    )
