"""The ranks of a worker meet at `join`: each says what it holds, and all refuse what does not go together.

Which samples of a mini-batch a rank gets depends on its place in data parallelism:

    DistributedDataParallel         its place in the wrapper's group
    fully_shard on one dimension    its place in the group
    parallelize_module alone        all ranks get the whole batch
    several dimensions              `data_group=` says it
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch import nn

from paceline.core.effects import KEEP, RESET
from paceline.core.errors import ConfigError
from paceline.engine.sharded.blocks import PartLayout, is_sharded, owners
from paceline.engine.sharded.gathered_model import GatheredModel
from paceline.engine.sharded.local_parts import REST, WEIGHTS, LocalParts
from paceline.runtime.spec.job_spec import Recipe
from paceline.runtime.worker.ranks.local_group import LocalGroup, process_group

KINDS = (WEIGHTS, REST)


@dataclass(frozen=True, slots=True)
class RankMeeting:
    """Holds what one rank knows of its worker after the meeting.

    module    the model as the loop calls it; link: to the other ranks
    places    for each rank, its place in data parallelism, from 0
    layouts   of all ranks by kind; sends: for each kind and rank, the numbers of the tensors that it sends
    """

    module: nn.Module
    parts: LocalParts
    link: LocalGroup
    places: tuple[int, ...]
    layouts: dict[str, list[PartLayout]]
    sends: dict[str, list[list[int]]]

    @property
    def is_first(self) -> bool:
        """Returns True for the rank that takes part in the run."""
        return not self.link.rank

    @property
    def place(self) -> tuple[int, int]:
        """Returns which part of a mini-batch is this rank's, and how many parts there are."""
        return self.places[self.link.rank], max(self.places) + 1

    def whole(self) -> GatheredModel:
        """Returns the whole model, on the first rank; the others wait for orders meanwhile."""
        return GatheredModel(self.parts, self.link, self.layouts, self.sends)

    def samples_of(self, counts: Sequence[float]) -> int | None:
        """Returns the samples of a step from those of each rank: -1 for unknown. None: no rank knows any.

        RankMeeting of one place have the same samples, so they count once.
        """
        given = {place: int(count) for place, count in zip(self.places, counts, strict=True) if count >= 0}
        return sum(given.values()) if given else None


def meet(model: Any, optimizer: Any, group: Any, data_group: Any, timeout_s: float) -> RankMeeting:
    """Returns what this rank knows after the meeting. All ranks raise the same ConfigError where something is wrong."""
    link = LocalGroup.meet(group, timeout_s)
    module = parts = None
    said: dict[str, Any] = {"refused": ""}
    try:
        module, parts = _parts_of(model, optimizer)
        said |= {kind: msgspec.to_builtins(parts.layout(kind)) for kind in KINDS}
        said["place"] = _place(module, link, data_group)
    except ConfigError as error:
        said["refused"] = str(error)
    found = [json.loads(text) for text in link.texts(json.dumps(said))]
    for one in found:
        if one["refused"]:
            raise ConfigError(one["refused"])
    assert parts is not None
    assert module is not None
    layouts = {kind: [msgspec.convert(one[kind], PartLayout) for one in found] for kind in KINDS}
    sends = {kind: owners(of) for kind, of in layouts.items()}
    places = tuple(int(one["place"]) for one in found)
    if sorted(set(places)) != list(range(max(places) + 1)):
        raise ConfigError(f"data_group=: the ranks have the places {places} in it; give each rank its own group")
    return RankMeeting(module, parts, link, places, layouts, sends)


def check_asked(*, lazy: bool, overlap: bool, evaluate: Any, state: Any, constraint: Any) -> None:
    """Raises ConfigError for what `join` does not take together with `group`, with the way out."""
    ways = {
        "lazy": (lazy, "give the embeddings sparse=False"),
        "overlap": (overlap, "the exchange begins when all ranks have their gradients; leave it out"),
        "evaluate": (evaluate, "evaluate on all ranks within `with pace.shared_model()`, and call pace.report"),
        "constraint": (constraint, "it gets the whole model, of which each rank has a part; leave it out"),
        "state": (state, "use `paceline launch --checkpoint-every 60 --resume auto`"),
    }
    for name, (given, way_out) in ways.items():
        if given:
            raise ConfigError(f"paceline.join(group=...) has no {name}=: {way_out}")


def check_recipe(recipe: Recipe, servers: int) -> None:
    """Raises ConfigError for what a worker of several devices cannot do in a run with so many servers."""
    scheme = recipe.make_scheme()
    memory = getattr(scheme, "memory", KEEP)
    if memory not in (KEEP, RESET):
        raise ConfigError(
            f"--{recipe.scheme}.memory {memory}: in a worker of several devices each rank keeps its part of the "
            f"optimizer's state; give memory={KEEP!r} or {RESET!r}"
        )
    by_path = recipe.optimizer.by_path
    if not servers and not scheme.trains_locally and by_path is not None and not by_path.counts:
        raise ConfigError(
            f"{recipe.scheme} without servers updates the whole model on the first rank, and {by_path.kind} is not "
            "torch's: give one of torch.optim, or a scheme that trains locally, such as diloco"
        )


def _parts_of(model: Any, optimizer: Any) -> tuple[nn.Module, LocalParts]:
    """Returns the model, and what this process holds of it. Raises ConfigError for what cannot be shared by ranks."""
    if not isinstance(model, nn.Module):
        raise ConfigError("paceline.join(group=...) takes one model: several by name are for workers of one device")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ConfigError(
            "paceline.join(group=...) takes an optimizer itself, made of the parameters as they are sharded"
        )
    return model, LocalParts(model, optimizer)


def _place(module: Any, link: LocalGroup, data_group: Any) -> int:
    """Returns the place of this rank in data parallelism. Raises ConfigError where it cannot be known."""
    if data_group is not None:
        return dist.get_rank(process_group(data_group, "data_group"))
    kinds = {kind.__name__ for part in module.modules() for kind in type(part).__mro__}
    if "DistributedDataParallel" in kinds:
        return dist.get_rank(module.process_group)
    if "FSDPModule" not in kinds:
        return 0
    if any(p.device_mesh.ndim > 1 for p in module.parameters() if is_sharded(p)):
        raise ConfigError(
            "paceline.join(group=...): the model is sharded in several dimensions; say which ranks have samples of "
            'their own: data_group=mesh["dp"]'
        )
    return link.rank
