"""Every trained sample is in the final model, however a run ends: all schemes, train, launch and simulate.

python benchmarks/laws.py [--schemes all] [--ways train,launch,simulate] [--workers 1,2,3,8] [--servers 0,1,3]
                          [--endings epochs,samples,steps,seconds,break,stop] [--quick]

The model is a table with one row a sample, and a step changes the rows of its mini-batch and no others. So the final
model says which samples it holds. A run ends before its first epoch does, and trains each sample once at most. The
claim, for each run:

    rows that changed = samples that the run counts - samples of contributions that the scheme dropped (in the trace)

`train` and `simulate` run in this process, their workers as threads or in virtual time; `launch` starts real processes
of this very file as a script. `break` ends each loop after a number of steps of its own, `stop` lets worker 0 end the
run. `--quick` takes two workers and a server only. A scheme that cannot run without servers is left out there.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils.data import TensorDataset

SAMPLES, BATCH = 600, 4
COPIES = 4
"""Tables, each with a row a sample: schemes that exchange parts of the model in turn have one in each part."""
LIMITS = {"samples": 150, "steps": 13, "seconds": 0.4, "epochs": 0.25}
"""Where a run ends: after samples of all, steps of each, seconds, or this part of an epoch."""
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


def config_of(scheme: str, ending: str, workers: int, servers: int, out: Path) -> Any:
    from paceline.config import build

    here = Path(__file__).resolve()
    return build(
        {
            "run": {"scheme": scheme, "out": str(out), "seed": 1},
            "cluster": {"workers": workers, "servers": servers, "timeout": 60.0, "step_ms": STEP_MS.get(ending, 0.0)},
            "data": {"name": f"{here}:numbered", "batch_size": BATCH},
            "model": {"name": f"{here}:Marks"},
            "optimizer": {"lr": 1.0, "momentum": 0.0},
            "stop": {"epochs": 0.9, ending: LIMITS[ending]},
            "evaluation": {"every": 1.0},
            **parameters(scheme),
        }
    )


def by_train(scheme: str, ending: str, workers: int, servers: int, out: Path) -> int:
    """Trains as `paceline train` does, with threads for processes; returns the samples counted."""
    from paceline.core.coordination import party
    from paceline.launch.local.train import Silent
    from paceline.live.net.inprocess_transport import Hub
    from paceline.runtime.supervisor.supervisor import RunSupervisor
    from paceline.runtime.thread_launcher import ThreadLauncher

    hub = Hub()
    config = config_of(scheme, ending, workers, servers, out)
    transport = lambda token, failed: hub.transport(party.COORDINATOR, failed)  # noqa: E731
    return RunSupervisor(config, transport, ThreadLauncher(hub), Silent()).run().samples


def by_simulate(scheme: str, ending: str, workers: int, servers: int, out: Path) -> int:
    """Trains in virtual time, as `paceline simulate` does; returns the samples counted."""
    from paceline.launch.local.train import Silent
    from paceline.runtime.simulated.setup import SimulationSetup, cluster_of
    from paceline.runtime.simulated.simulated_run import VirtualRun
    from paceline.sim.cluster.model import NetworkSpec

    config = config_of(scheme, ending, workers, servers, out)
    setup = SimulationSetup(config=config, cluster=cluster_of(config, NetworkSpec(latency_s=1e-3), lambda: 0.01))
    return VirtualRun(setup, Silent()).run().samples


def by_launch(scheme: str, ending: str, workers: int, servers: int, out: Path) -> int:
    """Starts this file as a script under `paceline launch`; returns the samples counted."""
    command = [sys.executable, "-m", "paceline", "launch", "-n", str(workers), "-s", str(servers), "--out", str(out)]
    if ending in LIMITS:
        command += [f"--{ending}", str(LIMITS[ending]), "--step-ms", str(STEP_MS.get(ending, 0.0))]
    done = subprocess.run(
        [*command, sys.executable, str(Path(__file__).resolve()), "--loop", scheme, ending, str(out.parent / MARKS)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit {done.returncode}")
    return int(json.loads((out / "summary.json").read_text())["samples"])


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


WAYS = {"train": by_train, "launch": by_launch, "simulate": by_simulate}


def cases(options: argparse.Namespace) -> Iterator[tuple[str, str, str, int, int]]:
    """Yields way, scheme, ending, workers and servers of each run that can be."""
    import paceline.config  # noqa: F401  enters all schemes into the registry
    from paceline.core.errors import ConfigError
    from paceline.core.scheme import make, names

    schemes = names() if options.schemes == "all" else options.schemes.split(",")
    sizes = [(2, 1)] if options.quick else itertools.product(options.workers, options.servers)
    for (workers, servers), way, scheme in itertools.product(list(sizes), options.ways.split(","), schemes):
        try:
            make(scheme, {}).check(workers, servers)
        except ConfigError:
            continue
        for ending in options.endings.split(","):
            if ending in LIMITS or way == "launch":
                yield way, scheme, ending, workers, servers


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    numbers = lambda text: [int(number) for number in text.split(",")]  # noqa: E731
    parser.add_argument("--schemes", default="all")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--workers", type=numbers, default=[1, 2, 3, 8])
    parser.add_argument("--servers", type=numbers, default=[0, 1, 3])
    parser.add_argument("--endings", default="epochs,samples,steps,seconds,break,stop")
    parser.add_argument("--quick", action="store_true", help="two workers and one server only")
    parser.add_argument("--loop", nargs=3, metavar=("SCHEME", "ENDING", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.loop:
        loop(*options.loop)
        return 0
    from _verdict import verdict

    torch.set_num_threads(1)
    runs = broken = 0
    for way, scheme, ending, workers, servers in cases(options):
        runs += 1
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            try:
                counted = WAYS[way](scheme, ending, workers, servers, out)
                weights = load_file(out.parent / MARKS if way == "launch" else out / "model.safetensors")
                found, lost = marked(weights), dropped(out)
                what = f"{counted} counted, {lost} dropped, {found} in the model"
                holds = 0 < counted <= SAMPLES and found == counted - lost
            except Exception as error:
                what, holds = f"{type(error).__name__}: {error}", False
        if not holds:
            broken += 1
            print(f"{way} {scheme}, {workers} workers, {servers} servers, ended by {ending}: {what}", flush=True)
    print(f"{datetime.date.today()}: {runs} runs, {broken} do not hold what they count")
    return verdict("the final model holds every trained sample", runs > 0 and not broken)


if __name__ == "__main__":
    sys.exit(main())
