"""The laws of every run, as one table: all schemes, train, launch and simulate, 1, 2 and 4 workers.

python benchmarks/laws.py [--quick] [--laws samples,loop,resume,alike] [--schemes all] [--ways train,launch,simulate]
                          [--workers 1,2,4] [--servers 1] [--endings epochs,samples,steps,seconds,break,stop]

    samples   rows that changed = samples that the run counts - those of contributions that the scheme dropped
    loop      one worker equals the plain loop; several equal one process on the joint batch (BSP, and schemes that
              equal it by their parameters), within the rounding of float32
    resume    a run that goes on from a checkpoint equals the uninterrupted one; one or two workers bit for bit
    alike     live updates hold the samples that simulated ones hold

A cell is `-` where the scheme does not promise the law. The laws but the first are in `_equal_runs.py`.

Samples: the model is a table with one row a sample, and a step changes the rows of its mini-batch and no others. So the
final model says which samples it holds. A run ends before its first epoch does, and trains each sample once at most.
`train` and `simulate` run in this process, their workers as threads or in virtual time; `launch` starts real processes
of a script. `break` ends each loop after a number of steps of its own, `stop` lets worker 0 end the run.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.data import TensorDataset

sys.path.insert(0, str(Path(__file__).resolve().parent))  # tests import this script as a module

from _equal_runs import equals_loop, hand_over_alike, resumes
from _ways import launch, simulate, train

from paceline.core.errors import ConfigError
from paceline.core.scheme import make, names

SAMPLES, BATCH = 600, 4
COPIES = 4
"""Tables, each with a row a sample: schemes that exchange parts of the model in turn have one in each part."""
LIMITS = {"samples": 150, "steps": 9, "seconds": 0.4, "epochs": 0.25}
"""Where a run ends: after samples of all, steps of each, seconds, or this part of an epoch.

With 8 workers a share is 75 samples, and `lbbsp` gives a fast worker up to twice the batch: 9 steps are within it.
"""
STEP_MS = {"seconds": 20.0}
MARKS = "marks.safetensors"
"""The final model of a script."""


class Marks(nn.Module):
    """Gives two numbers a sample, from rows that no other sample has."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ParameterList(nn.Parameter(torch.zeros(SAMPLES, 2)) for _ in range(COPIES))

    def forward(self, x: Tensor) -> Tensor:
        rows = x.long().flatten()
        return torch.stack([table[rows] for table in self.tables]).sum(0)


def numbered() -> list[TensorDataset]:
    """Returns the training set, sample i of which is the number i, and a test set of two samples."""
    data = TensorDataset(torch.arange(SAMPLES)[:, None].float(), torch.zeros(SAMPLES, dtype=torch.long))
    return [data, TensorDataset(*data[:2])]


def marked(weights: dict[str, Tensor]) -> int:
    """Returns how many samples have changed a row."""
    return int(torch.stack([table.abs().sum(1) for table in weights.values()]).sum(0).count_nonzero())


def dropped(out: Path) -> int:
    """Returns the samples of contributions that the first shard recorded as dropped."""
    from paceline.core.trace import Applied
    from paceline.observe.trace.trace_file import read_trace

    records = (record for record in read_trace(out / "trace.jsonl") if isinstance(record, Applied))
    return sum(record.samples for record in records if record.weight == 0 and record.shard == 0)


def parameters(scheme: str) -> dict[str, dict[str, Any]]:
    """Returns what a scheme is given beside its defaults: hybrid has to know the length of an epoch."""
    return {scheme: {"epoch_samples": SAMPLES}} if scheme == "hybrid" else {}


def config_of(scheme: str, ending: str, workers: int, servers: int, out: Path, **more: dict[str, Any]) -> Any:
    """Returns the configuration of a run. `ending`: one of LIMITS, or else 0.9 epochs. `more`: further sections."""
    from paceline.config import build

    here, cluster = Path(__file__).resolve(), more.pop("cluster", {})
    processes = {"workers": workers, "servers": servers, "timeout": 60.0}
    return build(
        {
            "run": {"scheme": scheme, "out": str(out), "seed": 1},
            "cluster": {**processes, "step_ms": STEP_MS.get(ending, 0.0), **cluster},
            "data": {"name": f"{here}:numbered", "batch_size": BATCH},
            "model": {"name": f"{here}:Marks"},
            "optimizer": {"lr": 1.0, "momentum": 0.0},
            "stop": {"epochs": 0.9, **({ending: LIMITS[ending]} if ending in LIMITS else {})},
            "evaluation": {"every": 1.0},
            **parameters(scheme),
            **more,
        }
    )


def by_train(scheme: str, ending: str, workers: int, servers: int, out: Path) -> int:
    """Trains with threads for processes; returns the samples counted."""
    return train(config_of(scheme, ending, workers, servers, out)).samples


def by_simulate(scheme: str, ending: str, workers: int, servers: int, out: Path) -> int:
    """Trains in virtual time; returns the samples counted."""
    return simulate(config_of(scheme, ending, workers, servers, out)).samples


def by_launch(scheme: str, ending: str, workers: int, servers: int, out: Path) -> int:
    """Starts this file as a script; returns the samples counted."""
    flags = [f"--{ending}", LIMITS[ending], "--step-ms", STEP_MS.get(ending, 0.0)] if ending in LIMITS else []
    script = [Path(__file__).resolve(), "--loop", scheme, ending, out.parent / MARKS]
    return launch(script, workers, servers, out, *flags)


def loop(scheme: str, ending: str, file: str) -> None:
    """Is the script of a worker, the first of which saves the final model in `file`."""
    import paceline

    model = Marks()
    given = {name: value for section in parameters(scheme).values() for name, value in section.items()}
    pace = paceline.join(model, torch.optim.SGD(model.parameters(), lr=1.0), scheme=scheme, **given)
    for n, (x, y) in enumerate(pace.batches(numbered()[0], BATCH, epochs=None if ending in LIMITS else 1), 1):
        nn.functional.cross_entropy(model(x), y).backward()
        pace.step()
        if ending == "stop" and n == 9 and pace.rank == 0:
            pace.stop()
        if ending == "break" and n == 7 + 4 * pace.rank:
            break
    pace.close()
    if pace.rank == 0:
        from safetensors.torch import save_file

        save_file({f"table.{n}": table.detach().clone() for n, table in enumerate(model.tables)}, file)


LAWS = ("samples", "loop", "resume", "alike")
CELLS = {True: "yes", False: "**NO**", None: "-"}
WAYS = {"train": by_train, "launch": by_launch, "simulate": by_simulate}


def sizes_of(scheme: str, options: argparse.Namespace) -> Iterator[tuple[int, int]]:
    """Yields the numbers of workers and servers with which the scheme can run."""
    for workers, servers in itertools.product(options.workers, options.servers):
        with contextlib.suppress(ConfigError):
            make(scheme, {}).check(workers, servers)
            yield workers, servers


def holds_samples(way: str, scheme: str, workers: int, servers: int, ending: str, out: Path) -> str:
    """Returns "" where the final model holds what the run counts, and else what was found."""
    counted = WAYS[way](scheme, ending, workers, servers, out)
    found = marked(load_file(out.parent / MARKS if way == "launch" else out / "model.safetensors"))
    if 0 < counted <= SAMPLES and found == counted - dropped(out):
        return ""
    return f"{counted} counted, {dropped(out)} dropped, {found} in the model"


def all_samples(way: str, scheme: str, workers: int, options: argparse.Namespace) -> bool | None:
    """Returns whether all runs of a row hold their samples, with each number of servers and ending.

    None under a scheme whose codec keeps what it has not sent, where vectors are encoded: then the model lacks that.
    """
    if way == "launch" and make(scheme, {}).codec:
        return None
    ran = whole = 0
    for (n, servers), ending in itertools.product(list(sizes_of(scheme, options)), options.endings):
        if n != workers or not (ending in LIMITS or way == "launch"):
            continue
        ran += 1
        with tempfile.TemporaryDirectory() as folder:
            what = attempt(lambda out, s=servers, e=ending: holds_samples(way, scheme, workers, s, e, out), folder)
        whole += not what
        if what:
            print(f"{way} {scheme}, {workers} workers, {servers} servers, ended by {ending}: {what}", flush=True)
    return whole == ran if ran else None


def attempt(law: Callable[[Path], Any], folder: str) -> Any:
    """Returns what a law finds, or the error that it ends with as text."""
    try:
        return law(Path(folder) / "run")
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def checks(scheme: str, workers: int, options: argparse.Namespace) -> Iterator[tuple[str, bool | None]]:
    """Yields each column of a row with whether its law holds, None where the scheme does not promise it."""

    def ask(column: str, law: Callable[[Path], bool | None]) -> tuple[str, bool | None]:
        with tempfile.TemporaryDirectory() as folder:
            found = attempt(law, folder)
        if isinstance(found, str):
            print(f"{column} {scheme}, {workers} workers: {found}", flush=True)
        return column, found if found is None else found is True

    live = [way for way in options.ways if way != "simulate"]
    if "samples" in options.laws:
        for way in options.ways:
            yield f"samples {way}", all_samples(way, scheme, workers, options)
    if "loop" in options.laws:
        for way in options.ways:
            yield ask(f"loop {way}", lambda out, way=way: equals_loop(way, scheme, workers, out))
    if "resume" in options.laws:
        for way in live:
            yield ask(f"resume {way}", lambda out, way=way: resumes(way, scheme, workers, out))
    if "alike" in options.laws:
        for way in live:
            yield ask(f"alike {way}", lambda out, way=way: hand_over_alike(way, scheme, workers, out))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words = lambda text: text.split(",")  # noqa: E731
    numbers = lambda text: [int(number) for number in text.split(",")]  # noqa: E731
    parser.add_argument("--laws", type=words, default=list(LAWS))
    parser.add_argument("--schemes", default="all")
    parser.add_argument("--ways", type=words, default=list(WAYS))
    parser.add_argument("--workers", type=numbers, default=[1, 2, 4])
    parser.add_argument("--servers", type=numbers, default=[1])
    parser.add_argument("--endings", type=words, default=["epochs", "samples"])
    parser.add_argument("--quick", action="store_true", help="two workers, no launch, no resume, one ending")
    parser.add_argument("--loop", nargs=3, metavar=("SCHEME", "ENDING", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.loop:
        loop(*options.loop)
        return 0
    if options.quick:
        options.laws, options.ways = ["samples", "loop", "alike"], ["train", "simulate"]
        options.workers, options.endings = [2], ["samples"]
    from _verdict import verdict

    torch.set_num_threads(1)
    schemes = names() if options.schemes == "all" else options.schemes.split(",")
    verdicts: Counter[bool | None] = Counter()
    head: list[str] = []
    for workers, scheme in itertools.product(options.workers, schemes):
        row = dict(checks(scheme, workers, options))
        if not head:
            head = ["scheme", "workers", *row]
            print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
        cells = [CELLS[holds] for holds in row.values()]
        print(f"| {scheme} | {workers} | {' | '.join(cells)} |", flush=True)
        verdicts.update(row.values())
    print(f"{datetime.date.today()}: {verdicts[True]} cells hold, {verdicts[False]} do not")
    return verdict("the laws of every run", verdicts[True] > 0 and not verdicts[False])


if __name__ == "__main__":
    sys.exit(main())
