"""Writes the checkpoints of a run, in the evaluator's process: nobody stops for them.

Where servers hold the model they are asked for one version, two ahead of the one they are at; each keeps it when it
comes by. Elsewhere the weights are those that the evaluator has looked at last.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from paceline.checkpoint.folder import Folder
from paceline.config import Config
from paceline.core.effects import SERVERS
from paceline.core.errors import Undone
from paceline.engine.flatten import FlatModel
from paceline.engine.vector import Flat
from paceline.job.capturing import CHECKPOINT, FORGET, VERSION, WEIGHTS, kept
from paceline.job.resuming import CHECKPOINTS, MODEL, OPTIMIZER, identity
from paceline.live import control, party
from paceline.live.exhibits import STATE
from paceline.live.session import Session

AHEAD = 2  # versions: in lock-step no server is further than one from another


class Keeper:
    """Of the model `module`, which is `flat`."""

    def __init__(
        self, config: Config, session: Session, servers: int, flat: FlatModel, module: nn.Module, begun_at: int
    ) -> None:
        """`servers`: that hold the model; 0 where the workers do. `begun_at`: samples of an earlier life of the run."""
        self._config, self._session, self._servers = config, session, servers
        self._flat, self._module, self._samples = flat, module, begun_at
        self._folder = Folder(Path(config.run.out) / CHECKPOINTS)
        self._last = time.monotonic()

    @property
    def wanted(self) -> bool:
        return self._config.checkpoint.every > 0

    @property
    def due(self) -> bool:
        return self.wanted and time.monotonic() - self._last >= self._config.checkpoint.every

    def save(self, accuracy: float) -> None:
        """One more; where the disk does not take it, a line in the log says so and the run goes on."""
        if not self.wanted:
            return
        try:
            vectors, facts = self._captured() if self._servers else ({}, {})
        except Undone:  # a server was replaced meanwhile; what was to be kept is no more
            return
        if WEIGHTS in vectors:
            self._flat.load(Flat.wrap(vectors.pop(WEIGHTS)))
        samples = round(facts.get("numbers", {}).get("samples_seen", 0)) or max(
            self._samples, self._session.total_samples
        )
        model = {name: tensor.clone().contiguous() for name, tensor in self._module.state_dict().items()}
        contents = {MODEL: [save(model)], **({OPTIMIZER: [save(vectors)]} if "numbers" in facts else {})}
        finite = all(bool(torch.isfinite(tensor).all()) for tensor in [*model.values(), *vectors.values()])
        number = max(self._folder.numbers(), default=0) + 1
        facts |= {"samples": samples, "accuracy": accuracy, "identity": identity(self._config)}
        try:
            self._folder.save(number, contents, finite=finite, **facts)
            self._folder.rotate(self._config.checkpoint.keep_last)
        except OSError as error:
            print(f"checkpoint {number} failed, training goes on: {error.strerror}", file=sys.stderr, flush=True)
        self._last = time.monotonic()

    def _captured(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Vectors as long as the model, and what else the servers remember, all of one version."""
        node, session = self._session.node, self._session
        everyone = [party.server(shard) for shard in range(self._servers)]
        ahead = max(node.version_of(server, VERSION) for server in everyone) + AHEAD
        session.tell_servers(self._servers, control.Capture(version=int(ahead)))
        facts: dict[str, Any] = json.loads(node.exhibit(SERVERS, kept(CHECKPOINT, STATE)).facts)
        del facts["tables"], facts["lr"]  # a later run goes on by its own
        vectors = {}
        for name in facts.pop("vectors"):
            v: Any = node.exhibit(SERVERS, kept(CHECKPOINT, name)).v
            vectors[name] = torch.empty(len(v))
            v.copy_into(vectors[name])
        session.tell_servers(self._servers, control.Capture(version=FORGET))
        return vectors, facts
