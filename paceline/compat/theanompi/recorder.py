"""The recorder that a model of Theano-MPI is given: it times the phases of a step, and keeps losses and errors.

What Theano-MPI pickles into `inforec/inforec.pkl` are here arrays without pickle, `inforec/<name>.npy`:

    train_info    [count, cost, error]
    val_info      [count, cost, error, error_top_5]
    all_time      [count, all, calc, sync, comm, wait], seconds for `print_freq` batches
    epoch_time    [count, seconds]
    lr            [count, learning rate]

`sync` is always 0: how long an exchange waited for others is in `trace.jsonl`.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

PHASES = ("calc", "sync", "comm", "wait")
WIDTHS = {"train_info": 3, "val_info": 4, "all_time": 6, "epoch_time": 2, "lr": 2}
FOLDER = "inforec"


class Recorder:
    """Keeps what one worker records; only rank 0 prints and saves."""

    def __init__(self, rank: int = 0, *, print_freq: int = 40, verbose: bool = True) -> None:
        self.rank, self.print_freq = rank, print_freq
        self._verbose = verbose and rank == 0
        self._began = self._epoch_began = time.perf_counter()
        self._seconds = dict.fromkeys(PHASES, 0.0)
        self._train: list[tuple[float, float]] = []
        self._val: list[tuple[float, float, float]] = []
        self.info: dict[str, list[tuple[float, ...]]] = {name: [] for name in WIDTHS}

    def start(self) -> None:
        """Begins a phase."""
        self._began = time.perf_counter()

    def end(self, mode: str) -> None:
        """Ends a phase: calc, sync, comm or wait."""
        self._seconds[mode] += time.perf_counter() - self._began

    def train_error(self, count: int, cost: float, error: float) -> None:
        """Notes the loss and the share of errors of one mini-batch."""
        self._train.append((float(cost), float(error)))

    def print_train_info(self, count: int) -> None:
        """Sums up and prints the last batches, every `print_freq` of them."""
        if len(self._train) < self.print_freq:
            return
        cost, error = (sum(column) / len(self._train) for column in zip(*self._train, strict=True))
        self.info["train_info"].append((count, cost, error))
        each = [self._seconds[phase] for phase in PHASES]
        self.info["all_time"].append((count, sum(each), *each))
        if self._verbose:
            calc, sync, comm, wait = each
            print(f"{count} {cost:.6f} {error:.6f}")
            parts = f"(train {calc:.2f} sync {sync:.2f} comm {comm:.2f} wait {wait:.2f})"
            print(f"time per {len(self._train)} batches: {sum(each):.2f} {parts}", flush=True)
        self._train.clear()
        self._seconds = dict.fromkeys(PHASES, 0.0)

    def val_error(self, count: int, cost: float, error: float, error_top_5: float) -> None:
        """Notes the loss and the shares of errors of one batch of validation."""
        self._val.append((float(cost), float(error), float(error_top_5)))

    def print_val_info(self, count: int) -> tuple[float, float, float] | None:
        """Returns and prints the means over the validation, None where nothing was validated."""
        if not self._val:
            return None
        cost, error, top_5 = (sum(column) / len(self._val) for column in zip(*self._val, strict=True))
        self._val.clear()
        self.info["val_info"].append((count, cost, error, top_5))
        if self._verbose:
            print(f"\nvalidation cost:{cost:.4f}")
            print(f"validation error:{error:.4f}")
            print(f"validation top_5_error:{top_5:.4f}\n", flush=True)
        return cost, error, top_5

    def start_epoch(self) -> None:
        self._epoch_began = time.perf_counter()

    def end_epoch(self, count: int, epoch: int, lr: float) -> None:
        """Notes how long the epoch took, and the learning rate."""
        seconds = time.perf_counter() - self._epoch_began
        self.info["epoch_time"].append((count, seconds))
        self.info["lr"].append((count, lr))
        if self._verbose:
            print(f"global epoch {epoch} took {seconds / 3600:.4f} hours", flush=True)

    def save(self, folder: Path = Path(FOLDER)) -> None:
        """Writes all arrays, on rank 0. Raises OSError."""
        if self.rank:
            return
        folder.mkdir(parents=True, exist_ok=True)
        for name, rows in self.info.items():
            np.save(folder / f"{name}.npy", np.array(rows, np.float64).reshape(-1, WIDTHS[name]))

    def load(self, folder: Path = Path(FOLDER)) -> None:
        """Reads arrays that `save` or the converter wrote. Raises OSError or ValueError."""
        for name in WIDTHS:
            array = np.load(folder / f"{name}.npy", allow_pickle=False)
            self.info[name] = [tuple(map(float, row)) for row in array]

    def cut(self, count: int) -> None:
        """Forgets everything after `count` batches, as before a run that goes on from there."""
        self.info = {name: [row for row in rows if row[0] <= count] for name, rows in self.info.items()}
