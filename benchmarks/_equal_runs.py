"""Runs that equal others: one worker the plain loop, several one process, resumed ones whole ones, live ones simulated.

As a script, this file is the loop of a worker under `paceline launch`: LOOP, SCHEME, its parameters as JSON, FILE.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

STEPS, BATCH = 12, 16
SAMPLES = 1437
"""Of the training set of digits, and of a script's own data."""
FIRST, IN_ALL = 24, 31
"""Steps of a run that is taken up again, and of the whole one."""
PART = 0.9
"""Of an epoch: the length of runs whose contributions are compared."""
OUTER = frozenset(("asyncdiloco", "decoupled", "diloco", "eamsgd", "easgd", "halos", "muloco", "noloco", "slowmo"))
OUTER |= {"sparseloco", "tiers"}
"""Schemes with an outer optimizer or a centre: one worker makes other steps than the loop."""
JOINT: dict[str, Callable[[int], dict[str, Any]]] = {
    "bsp": lambda n: {},
    "gsp": lambda n: {"groups": ",".join(map(str, range(n)))},
    "ksync": lambda n: {"k": n},
    "localsgd": lambda n: {"tau": 1},
    "postlocal": lambda n: {"tau": 1},
    "diloco": lambda n: {"h": 1, "outer_lr": 1.0, "outer_momentum": 0.0},
    "slowmo": lambda n: {"tau": 1, "beta": 0.0, "memory": "keep"},
}
"""Schemes that make the update of the joint batch, by the parameters with which they do."""


def equals_loop(way: str, scheme: str, workers: int, out: Path) -> bool | None:
    """Returns whether a run equals one process with the batches of all; None where the scheme does not promise it."""
    given = joint(scheme, workers)
    if given is None:
        return None
    if way == "launch":
        return _launched(scheme, given, workers, out)
    from _one_process import one_process, same, saved
    from _ways import simulate, train

    config = _config(scheme, given, workers, out, STEPS)
    {"train": train, "simulate": simulate}[way](config)
    return same(saved(config), one_process(config, STEPS))


def joint(scheme: str, workers: int) -> dict[str, Any] | None:
    """Returns the parameters with which the scheme equals one process; None where it does not."""
    if workers > 1:
        return JOINT[scheme](workers) if scheme in JOINT else None
    return None if scheme in OUTER else {}


def _config(scheme: str, given: dict[str, Any], workers: int, out: Path, steps: int, **more: Any) -> Any:
    from paceline.config import build

    sections = {
        "run": {"scheme": scheme, "seed": 3, "out": str(out)},
        # Who carries means is chosen by measured links, and each has other last bits.
        "cluster": {
            "workers": workers,
            "servers": 1,
            "timeout": 60.0,
            "allreduce": "servers",
            **more.pop("cluster", {}),
        },
        "data": {"batch_size": BATCH, "partition": "uniform"},
        "model": {"name": "mlp", "width": 0.25},
        "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9},
        "stop": {"epochs": 0.0, "steps": steps},
        "evaluation": {"every": 1.0},
        **more,
    }
    if scheme == "hybrid":
        given = {"epoch_samples": SAMPLES, **given}
    return build({**sections, scheme: given})


# ---- a loop of one's own ---------------------------------------------------------------------------------------------
def _launched(scheme: str, given: dict[str, Any], workers: int, out: Path) -> bool:
    from _one_process import same
    from _ways import launch

    file = out.parent / "weights.safetensors"
    launch(_script("own", scheme, given, file), workers, 1, out, "--allreduce", "servers")
    model = _model()
    optimizer = _sgd(model)
    for step in range(STEPS):
        batches = [_batch(step, rank, workers) for rank in range(workers)]
        optimizer.zero_grad()
        nn.functional.cross_entropy(
            model(torch.cat([x for x, _ in batches])), torch.cat([y for _, y in batches])
        ).backward()
        optimizer.step()
    return same(load_file(file), {name: p.detach() for name, p in model.named_parameters()})


def _model() -> nn.Module:
    torch.manual_seed(2)
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))


def _sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def _batch(step: int, rank: int, workers: int) -> tuple[Tensor, Tensor]:
    """Returns a mini-batch. Ranks have different sizes: a joint batch weighs samples and not ranks."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    x = torch.randn(BATCH + 8 * rank, 6, generator=generator)
    return x, (x.sum(1) > 0).long()


def _script(which: str, scheme: str, given: dict[str, Any], file: Path) -> list[Any]:
    """Returns the words of this file as a script; hybrid is given the length of an epoch, too."""
    given = {"epoch_samples": SAMPLES, **given} if scheme == "hybrid" else given
    return [Path(__file__).resolve(), which, scheme, json.dumps(given), file]


def own_batches(pace: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields the batches of a loop that draws its own."""
    return (_batch(step, pace.rank, pace.workers) for step in range(STEPS))


def shared_batches(pace: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields a worker's batches of a data set of all."""
    x = torch.randn(SAMPLES, 6, generator=torch.Generator().manual_seed(1))
    data = torch.utils.data.TensorDataset(x, (x.sum(1) > 0).long())
    yield from pace.batches(data, BATCH, epochs=2, partition="uniform")


LOOPS = {"own": own_batches, "shared": shared_batches}


def loop(which: str, scheme: str, given: str, file: str) -> None:
    """Is the script of a worker. It saves its contributions in FILE.RANK, and the first worker its model in FILE."""
    import paceline

    model = _model()
    pace = paceline.join(model, _sgd(model), scheme=scheme, **json.loads(given))
    with handed_over() as contributions:
        for x, y in LOOPS[which](pace):
            nn.functional.cross_entropy(model(x), y).backward()
            pace.step()
        pace.close()
    Path(f"{file}.{pace.rank}").write_text(json.dumps([*contributions.values()]))
    if pace.rank == 0:
        save_file({name: p.detach().clone() for name, p in model.named_parameters()}, file)


# ---- resumed runs ----------------------------------------------------------------------------------------------------
def resumes(way: str, scheme: str, workers: int, out: Path) -> bool | None:
    """Returns whether a run that is taken up again equals the whole one; None where it need not.

    One or two workers do bit for bit. Gradients of more are summed in the order in which they arrive.
    """
    from _small_rounds import SMALL

    from paceline.checkpoint.folder_store import CHECKPOINTS, FolderStore
    from paceline.core.scheme import make

    given = SMALL.get(scheme, [{}])[0]
    of = make(scheme, given)
    if scheme == "hybrid" or (workers > 1 and (not of.lock_step or not of.equal_rounds or of.needs_peers)):
        return None
    if of.name == "sparseloco" and workers > 2:
        return None  # its codec rounds magnitudes, so the last bit of a sum becomes a step of the codec, 8e-4 here
    run = {"train": _trained_steps, "launch": _launched_steps}[way]
    whole = run(scheme, given, workers, out / "whole", IN_ALL)
    run(scheme, given, workers, out / "first", FIRST, every=0.03, keep_last=100)
    store = FolderStore(out / "first" / CHECKPOINTS)
    facts = {number: store.manifest(number).facts for number in store.numbers()}
    found = [number for number, of in facts.items() if of["whole"] and (of["aligned"] or workers == 1)]
    again = run(scheme, given, workers, out / "again", IN_ALL, resume=str(store.place(found[-1])))
    equal = torch.equal if workers <= 2 else lambda a, b: torch.allclose(a, b, rtol=1e-4, atol=1e-6)
    return whole.keys() == again.keys() and all(equal(again[name], tensor) for name, tensor in whole.items())


def _trained_steps(
    scheme: str, given: dict[str, Any], workers: int, out: Path, steps: int, every: float = 0.0, **checkpoint: Any
) -> dict[str, Tensor]:
    from _one_process import saved
    from _ways import train

    settings = {
        "cluster": {"step_ms": 4.0},
        "evaluation": {"every": 0.02},
        "checkpoint": {"every": every, **checkpoint},
    }
    config = _config(scheme, given, workers, out, steps, **settings)
    train(config)
    return saved(config)


def _launched_steps(
    scheme: str, given: dict[str, Any], workers: int, out: Path, steps: int, every: float = 0.0, **checkpoint: Any
) -> dict[str, Tensor]:
    from _ways import launch

    file = out.with_suffix(".safetensors")
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in checkpoint.items()]
    flags += ["--steps", steps, "--step-ms", 4, "--checkpoint-every", every, "--allreduce", "servers"]
    launch(_script("shared", scheme, given, file), workers, 1, out, *flags)
    return load_file(file)


# ---- live and simulated ----------------------------------------------------------------------------------------------
def hand_over_alike(way: str, scheme: str, workers: int, out: Path) -> bool:
    """Returns whether a live and a simulated run make updates of the same samples.

    In lock-step with equal rounds these are the same worker by worker, in order. Elsewhere it is a matter of time how
    many each makes; their sum is the same, and none is larger than a simulated one, unless its size follows speeds.
    """
    from _small_rounds import SMALL

    from paceline.core.scheme import make

    given = SMALL.get(scheme, [{}])[0]
    of = make(scheme, given)
    live = sorted(_contributions(way, scheme, given, workers, out / way))
    simulated = sorted(_contributions("simulate", scheme, given, workers, out / "simulate"))
    if of.equal_rounds:
        return bool(live) and live == simulated
    sizes = [Counter(itertools.chain(*contributions)) for contributions in (live, simulated)]
    if sum(map(sum, live)) != sum(map(sum, simulated)) or not sizes[0]:
        return False
    return scheme in ("esync", "lbbsp", "hybrid") or max(sizes[0]) == max(sizes[1])


def _contributions(way: str, scheme: str, given: dict[str, Any], workers: int, out: Path) -> list[list[int]]:
    """Returns the samples of each contribution, in order, by the local work of each worker."""
    from _ways import launch, simulate, train

    if way == "launch":
        file = out.with_suffix(".safetensors")
        launch(_script("shared", scheme, given, file), workers, 1, out, "--epochs", PART)
        return [work for n in range(workers) for work in json.loads(Path(f"{file}.{n}").read_text())]
    with handed_over() as contributions:
        {"train": train, "simulate": simulate}[way](_config(scheme, given, workers, out, 0, stop={"epochs": PART}))
    return [*contributions.values()]


@contextmanager
def handed_over() -> Iterator[dict[int, list[int]]]:
    """Notes the samples of each contribution, in order, by the local work of each worker."""
    from paceline.runtime.worker.steps.local_work import LocalWork

    noted: dict[int, list[int]] = {}
    works: list[LocalWork] = []  # kept, so that no number is used twice
    done = LocalWork.done

    def noting(work: LocalWork, *args: Any, **more: Any) -> Any:
        result = done(work, *args, **more)
        if result is not None:
            works.append(work)
            noted.setdefault(id(work), []).append(result.samples)
        return result

    LocalWork.done = noting  # type: ignore[method-assign]
    try:
        yield noted
    finally:
        LocalWork.done = done  # type: ignore[method-assign]


if __name__ == "__main__":
    loop(*sys.argv[1:])
