"""The evaluator: looks at the model from time to time, on a copy, and saves the last one.

It asks the servers, or a worker that still trains where the model lives on the workers; those answer from the thread
that moves bytes, so no worker loop waits for an evaluation. An accuracy belongs to the moment at which the weights were
asked for.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import nn

from paceline.config import Config
from paceline.core.effects import SERVERS, To
from paceline.core.vector import cut
from paceline.engine.buffers import Buffers
from paceline.engine.data.dataset import Dataset
from paceline.engine.flatten import FlatModel
from paceline.job.recipe import Recipe
from paceline.job.seat import Seat
from paceline.job.worker import build_model, load_data
from paceline.live import control, party
from paceline.live.session import Session

BATCH = 500


def judge(model: nn.Module, data: Dataset) -> tuple[float, float]:
    """Accuracy (0..1) and mean loss on `data`."""
    right, loss = 0, 0.0
    model.eval()
    with torch.inference_mode():
        for x, y in zip(torch.split(data.x, BATCH), torch.split(data.y, BATCH), strict=True):
            logits = model(x)
            right += int((logits.argmax(1) == y).sum())
            loss += float(nn.functional.cross_entropy(logits, y, reduction="sum"))
    return right / len(data), loss / len(data)


def save_model(model: nn.Module, path: Path) -> None:
    """All or nothing, as safetensors that load into the plain module."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    save_file({name: tensor.clone().contiguous() for name, tensor in model.state_dict().items()}, draft)
    os.replace(draft, path)


class Evaluator:
    """Peeks, judges and saves."""

    def __init__(self, config: Config, seat: Seat, session: Session) -> None:
        self._config, self._session, self._node = config, session, session.node
        splits = load_data(config)
        x, y, classes = splits.test.x, splits.test.y, splits.test.classes
        self._test = Dataset(x.contiguous(memory_format=torch.channels_last), y, classes)
        self._module = build_model(config, splits)
        self._flat = FlatModel(self._module)
        # Pictures go through pooling and convolution about twice as fast in this layout.
        shown: Any = build_model(config, splits)
        self._shown: nn.Module = shown.to(memory_format=torch.channels_last)
        self._buffers = Buffers(self._module, config.model.buffers)
        self._seat = seat

    def join(self) -> None:
        """Until training starts."""
        session, seat = self._session, self._seat
        everybody = [party.server(s) for s in range(seat.servers)] + [party.worker(r) for r in range(seat.workers)]
        session.connect(everybody)
        plan = session.expect(control.Plan)
        scheme = Recipe.from_json(plan.optimizer).make_scheme()
        self._on_servers = scheme.model_of(seat.servers) == "servers"
        self._node.place(None, cut(plan.length, plan.servers) if plan.servers else (slice(0, plan.length),))
        session.expect(control.Go)
        session.begin()

    def judge_now(self, holder: int | None = None) -> None:
        """`holder` has the model where it lives on workers; by default one that still trains."""
        at = self._node.now()
        began = time.monotonic()
        if holder is None:
            departed = self._session.departed
            holder = next((rank for rank in range(self._seat.workers) if rank not in departed), 0)
        source: To = SERVERS if self._on_servers else holder
        self._flat.load(self._node.peek(source, "weights"))
        self._load_buffers()
        self._shown.load_state_dict(self._module.state_dict())
        accuracy, loss = judge(self._shown, self._test)
        seconds = time.monotonic() - began
        self._session.tell(control.Judged(at=at, accuracy=accuracy, loss=loss, seconds=seconds))

    def _load_buffers(self) -> None:
        """Batch-norm statistics: worker 0's, or the mean over the workers, by the policy."""
        if not len(self._buffers):
            return
        ranks = range(self._seat.workers) if self._buffers.exchanged else range(1)
        snapshots = [self._node.peek(rank, "buffers") for rank in ranks]
        self._buffers.load(self._buffers.average(snapshots, [1.0] * len(snapshots)))

    def save(self) -> None:
        save_model(self._module, Path(self._config.run.out) / "model.safetensors")


def evaluate(config: Config, seat: Seat, session: Session) -> None:
    """Until the coordinator says that nobody trains any more; then once again, and save."""
    evaluator = Evaluator(config, seat, session)
    evaluator.join()
    wait = 0.0
    while (finish := session.within(wait)) is None:
        began = time.monotonic()
        evaluator.judge_now()
        took = time.monotonic() - began
        wait = max(took, config.evaluation.every - took)  # never more than half of the time
    evaluator.judge_now(finish.holder)
    evaluator.save()
    session.done()
