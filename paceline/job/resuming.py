"""Where a run begins that is not the first of its kind: at a checkpoint, or at weights from a file.

The conductor finds the checkpoint and reads all of it once; everybody else reads what is theirs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, load_file
from torch import Tensor, nn

from paceline.checkpoint.folder import Folder
from paceline.checkpoint.manifest import Damaged, Manifest
from paceline.config import Config
from paceline.core.errors import ConfigError

CHECKPOINTS = "checkpoints"
MODEL, OPTIMIZER = "model.safetensors", "optimizer.safetensors"


def identity(config: Config) -> dict[str, Any]:
    """What has to be the same for a run to go on just where it was."""
    return {
        "scheme": config.run.scheme,
        "parameters": config.scheme().parameters(),
        "seed": config.run.seed,
        "workers": config.cluster.workers,
        "data": [config.data.name, config.data.samples, config.data.shares, config.data.batch_size],
        "optimizer": config.optimizer.name,
    }


@dataclass(frozen=True, slots=True)
class Start:
    """A checkpoint to go on from; without a `folder`, the beginning."""

    config: Config
    folder: Folder | None = None
    number: int = 0
    manifest: Manifest = field(default_factory=lambda: Manifest(files=(), finite=True, facts={}))

    @property
    def path(self) -> str:
        return str(self.folder.place(self.number)) if self.folder else ""

    @property
    def facts(self) -> dict[str, Any]:
        return self.manifest.facts

    @property
    def samples(self) -> int:
        """Trained by all workers together."""
        return int(self.facts.get("samples", 0))

    @property
    def version(self) -> int:
        """Of the servers; 0 where they begin anew."""
        return int(self.facts.get("version", 0)) if self.exact else 0

    @property
    def exact(self) -> bool:
        """Does it go on just where it was? Lock-step rounds of gradients, the same numbers, nothing kept by codecs."""
        scheme, compression = self.config.scheme(), self.config.compression
        same = self.facts.get("identity") == identity(self.config)
        plain = compression.up == compression.down == "none"
        return bool(same and plain and self.facts.get("lock_step") and scheme.computes and not scheme.trains_locally)

    @property
    def batches(self) -> int:
        """Mini-batches that each worker has behind it."""
        if self.exact:
            return self.version * int(getattr(self.config.scheme(), "steps", 1))
        return self.samples // (self.config.cluster.workers * self.config.data.batch_size)

    @property
    def note(self) -> str:
        if self.folder is None:
            return ""
        head = f"resumes checkpoint {self.number} of {self.folder.root} ({self.samples:,} samples)"
        if self.exact:
            return f"{head}: just where it was"
        kept = "weights, optimizer and samples" if self.optimizer_fits else "weights and samples"
        return f"{head}: {kept} go on, clocks and what workers remember begin anew"

    @property
    def optimizer_fits(self) -> bool:
        same = self.facts.get("identity", {}).get("optimizer") == self.config.optimizer.name
        return same and any(entry.name == OPTIMIZER for entry in self.manifest.files)

    def tensors(self, name: str) -> dict[str, Tensor]:
        """Those of one of its files. Raises ConfigError."""
        assert self.folder is not None
        entry = next((entry for entry in self.manifest.files if entry.name == name), None)
        try:
            if entry is None:
                raise ConfigError(f"{self.path} has no {name}")
            return dict(load(self.folder.load(self.number, entry)))
        except (Damaged, SafetensorError) as error:
            raise ConfigError(f"{self.path}: {error}") from None

    def load_into(self, model: nn.Module) -> None:
        """Its weights, or those of --init-from, if there are any. Raises ConfigError where they do not fit."""
        if self.folder is not None:
            load_weights(model, self.tensors(MODEL), self.path)
        elif self.config.checkpoint.init_from:
            load_weights(model, read_weights(self.config.checkpoint.init_from), self.config.checkpoint.init_from)


def load_weights(model: nn.Module, weights: dict[str, Tensor], source: str) -> None:
    """By name. Raises ConfigError, naming the first tensor that is missing, unknown or of another shape."""
    own = model.state_dict()
    for name, tensor in own.items():
        if name not in weights:
            raise ConfigError(f"{source} has no {name}, which the model has: give the --model it was made of")
        if weights[name].shape != tensor.shape:
            found, wanted = tuple(weights[name].shape), tuple(tensor.shape)
            raise ConfigError(
                f"{source}: {name} has shape {found}, the model wants {wanted}: check --model and --width"
            )
    unknown = sorted(set(weights) - set(own))
    if unknown:
        raise ConfigError(f"{source} has {unknown[0]}, which the model does not: give the --model it was made of")
    model.load_state_dict(weights)


def read_weights(path: str) -> dict[str, Tensor]:
    """Of a safetensors file. Raises ConfigError."""
    try:
        return dict(load_file(path))
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"--init-from {path}: {getattr(error, 'strerror', None) or error}") from None


def find(config: Config) -> tuple[Start, list[str]]:
    """Where the run of `config` begins, and why newer checkpoints do not count. Raises ConfigError."""
    wanted = config.checkpoint.resume
    if wanted == "never":
        if config.checkpoint.init_from:
            read_weights(config.checkpoint.init_from)
        return Start(config), []
    path = Path(config.run.out if wanted == "auto" else wanted)
    if path.name.isdecimal():
        return open_at(config, str(path)), []
    folder = Folder(path / CHECKPOINTS if (path / CHECKPOINTS).is_dir() or wanted == "auto" else path)
    number, refused = folder.newest()
    if number is None:
        if wanted == "auto" and not refused:
            return Start(config), []
        why = f": {refused[0]}" if refused else ""
        raise ConfigError(f"--resume {wanted}: no checkpoint to go on from in {folder.root}{why}")
    return Start(config, folder, number, folder.manifest(number)), refused


def open_at(config: Config, path: str) -> Start:
    """At one checkpoint; at the beginning without a path. Raises ConfigError."""
    if not path:
        return Start(config)
    folder, number = Folder(Path(path).parent), int(Path(path).name)
    try:
        return Start(config, folder, number, folder.manifest(number))
    except Damaged as error:
        raise ConfigError(f"--resume {path}: {error}") from None


def parts_of(vectors: dict[str, Tensor], part: slice) -> dict[str, Tensor]:
    """The part of each vector that a slice of the model holds."""
    return {name: torch.clone(v[part]) for name, v in vectors.items()}
