"""Workers of several devices: DiLoCo between two workers of two processes against four synchronous processes.

python benchmarks/several_devices.py [--samples 30000] [--exchange 4,16]

All run examples/15_several_devices.py, with fully_shard over Gloo on this machine's CPUs, on the same samples:

    plain     four processes of fully_shard, without Paceline
    bsp       two workers of two processes, an exchange every step
    diloco    the same, an exchange every H = 20 steps

A row has the loss on unseen text, the bytes that worker 0 exchanges with the server while it trains, and seconds. The
claims: diloco's loss is within 2 % of plain's, and its bytes are at most 1/H of bsp's.

    exchange  what the ranks of a worker exchange among themselves at an exchange with the servers, by the size of the
              model and the number of ranks: the shards are gathered on the first rank, and the new weights handed out
              again; through memory that all ranks have, and over their connections. `copy`: one copy of the vector in
              one process, for comparison
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from _verdict import verdict

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "15_several_devices.py"
H = 20
LOSS_MAX = 1.02
EXCHANGED = 8
"""Exchanges over which `EXCHANGE` counts bytes."""
JOIN = 'pace = paceline.join(model, optimizer, scheme="diloco", h=20, group=dist.group.WORLD)  # 1\n'
BEFORE = "before = pace._worker.lifecycle.traffic() if pace.local_rank == 0 else (0, 0)\n"
CLOSE = "pace.close()  # 4: the final model, on all ranks\n"
TRAFFIC = "after = pace._worker.lifecycle.traffic() if pace.local_rank == 0 else (0, 0)\n"
PLAIN = """
from torch.utils.data import DataLoader, DistributedSampler
for x, y in DataLoader(dataset, 32, sampler=DistributedSampler(dataset)):
    loss_of(model(x), y).backward()
    optimizer.step()
    optimizer.zero_grad()
"""
SAYS = """
if dist.get_rank() == 0:
    print("found", json.dumps([float(loss), sum(after) - sum(before)]), flush=True)
"""
EXCHANGE = """
import json, statistics, time, torch, torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from paceline.runtime.worker.ranks.local_group import LocalGroup
from paceline.runtime.worker.ranks.meeting import meet
from paceline.runtime.worker.ranks.other_rank import Obedience
dist.init_process_group("gloo")
if not {shares}:
    LocalGroup.share = lambda self, length: None
model = nn.Sequential(*[nn.Linear(1024, 1024, bias=False) for _ in range({millions})])
for layer in model:
    fully_shard(layer)
fully_shard(model)
ranks = meet(model, torch.optim.SGD(model.parameters(), lr=0.1), dist.group.WORLD, None, 60.0)
if ranks.is_first:
    whole, seconds = ranks.whole(), []
    before = ranks.link.bytes
    for n in range({exchanged}):
        whole.touched()
        began = time.perf_counter()
        w = whole.weights()
        gathered = time.perf_counter()
        whole.load(w * 0.5)
        seconds.append((gathered - began, time.perf_counter() - gathered))
    one, other = torch.ones(len(whole)), torch.zeros(len(whole))
    for n in range(5):
        began = time.perf_counter()
        other.copy_(one)
        copy = time.perf_counter() - began
    ranks.link.order("closed")
    medians = [statistics.median(of) for of in zip(*seconds[2:])]
    print("found", json.dumps([*medians, copy, ranks.link.bytes - before]), flush=True)
else:
    Obedience(ranks).until("closed")
"""


def script(kind: str, samples: int) -> str:
    """The example, with another scheme or none, which says its loss and its bytes last."""
    text = EXAMPLE.read_text(encoding="utf-8").replace("samples(30_000", f"samples({samples}")
    assert JOIN in text
    assert CLOSE in text
    head, _, rest = text.partition(JOIN)
    loop, _, tail = rest.partition(CLOSE)
    tail = tail.replace("dist.destroy_process_group()", SAYS)
    if kind == "plain":
        said = tail.partition("if pace.local_rank == 0:")[0]
        return f"import json\n{head}{PLAIN}before = after = (0, 0)\n{said}{SAYS}"
    join = JOIN if kind == "diloco" else JOIN.replace('scheme="diloco", h=20', 'scheme="bsp"')
    return f"import json\n{head}{join}{BEFORE}{loop}{TRAFFIC}{CLOSE}{tail}"


def found_by(text: str, *before: str) -> list[float]:
    """What the script says, started by the words `before` it."""
    with tempfile.TemporaryDirectory() as folder:
        own = Path(folder) / "own.py"
        own.write_text(text, encoding="utf-8")
        words = [word.replace("OUT", str(Path(folder) / "run")) for word in before]
        command = [sys.executable, "-m", *words, sys.executable, str(own)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    rows = [line.partition("found ")[2] for line in done.stdout.splitlines() if "found " in line]
    if done.returncode or not rows:
        raise SystemExit(done.stdout + done.stderr)
    numbers: list[float] = json.loads(rows[0])
    return numbers


def exchanges(sizes: list[int], numbers: list[int]) -> None:
    """Prints what the ranks' own exchange costs, for models of so many million parameters on so many ranks."""
    print(f"{'million':8} {'ranks':>5} {'way':>12} {'gather':>9} {'hand out':>9} {'copy':>8} {'MB sent':>8}")
    for millions, ranks, shares in itertools.product(sizes, numbers, (True, False)):
        text = EXCHANGE
        for name, value in {"millions": millions, "shares": shares, "exchanged": EXCHANGED}.items():
            text = text.replace(f"{{{name}}}", str(value))
        gather, hand_out, copy, sent = found_by(text, "paceline.launch.local.rank_processes", str(ranks))
        way = "memory" if shares else "connections"
        times = f"{gather * 1e3:6.1f} ms {hand_out * 1e3:6.1f} ms {copy * 1e3:5.1f} ms"
        print(f"{millions:<8} {ranks:5} {way:>12} {times} {sent / EXCHANGED / 1e6:8.1f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=30_000)
    parser.add_argument("--exchange", default="4,16", help="millions of parameters, separated by commas")
    parser.add_argument("--ranks", default="2", help="numbers of ranks for `exchange`, separated by commas")
    parser.add_argument("--only-exchange", action="store_true", help="leave the losses out")
    options = parser.parse_args()
    ranks = ("paceline.launch.local.rank_processes",)
    launch = ("paceline", "launch", "-n", "2", "--ranks", "2", "-s", "1", "--out", "OUT")
    exchanges([int(n) for n in options.exchange.split(",")], [int(n) for n in options.ranks.split(",")])
    if options.only_exchange:
        return 0
    rows: dict[str, list[float]] = {}
    print(f"\n{'':8} {'loss':>7} {'MB in training':>15}")
    for kind, words in (("plain", (*ranks, "4")), ("bsp", launch), ("diloco", launch)):
        rows[kind] = found_by(script(kind, options.samples), *words)
        loss, exchanged = rows[kind]
        print(f"{kind:8} {loss:7.4f} {'' if kind == 'plain' else f'{exchanged / 1e6:.1f}':>15}", flush=True)
    ratio = rows["diloco"][0] / rows["plain"][0]
    share = rows["diloco"][1] / rows["bsp"][1]
    print(f"\nloss of diloco / plain: {ratio:.4f}; bytes of diloco / bsp: {share:.4f} (1/H = {1 / H:.4f})")
    return max(
        verdict("the loss is within 2 % of four synchronous processes", ratio <= LOSS_MAX),
        verdict("the bytes between workers are at most 1/H of the synchronous run's", share <= 1 / H),
    )


if __name__ == "__main__":
    sys.exit(main())
