"""The whole model on the first rank of a worker, in host memory, while all ranks of the worker train parts of it.

`GatheredModel` is the `FlatModel` of a module that nobody computes with: it has every parameter and buffer of the real
one, in full. So the scheme, the codecs, the servers and the checkpoints of a worker of several devices see the vector
that they would see of a worker of one device.

    weights()       the ranks' weights are gathered, unless nothing has changed them
    load(w)         w goes to the ranks, each its part
    gradient()      the ranks' gradients are gathered
    optimizer_state()  so is what the ranks' optimizers remember; load_optimizer_state(state): each rank takes its part
    zero_grad()     all ranks drop their gradients
    showing(w)      all ranks have w within the context, and their own weights after it

Weights and gradients pass through memory that all ranks have (`share`), where there is such: each rank copies its own
blocks to and from it, at the same time as the others. Otherwise they are sent to the first rank and from it.

Each of these is a command to the other ranks (`RankLink`), which wait for commands between two turns of their loop.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from paceline.engine.model.flat_model import FlatModel
from paceline.engine.model.trainable import Rest
from paceline.engine.optim.packed_state import PACKED
from paceline.engine.sharded.blocks import PartLayout, local_of
from paceline.engine.sharded.local_parts import GRADIENTS, REST, WEIGHTS, LocalParts
from paceline.engine.sharded.local_state import LocalState
from paceline.engine.sparse.sparse_vector import AnyFlat

_version_of = attrgetter("_version")


class RankLink(Protocol):
    """Connects the first rank of a worker with the others. Raises PeerLost where one of them is lost."""

    def order(self, act: str, **arguments: Any) -> None:
        """Tells the other ranks what to do (`paceline.runtime.worker.ranks.orders`)."""

    def collect(self, lengths: Sequence[int], dtype: torch.dtype) -> list[Tensor]:
        """Returns what each other rank sends, of the given lengths."""

    def share(self, length: int) -> Tensor | None:
        """Returns memory that all ranks have, for a vector of that length; None where they cannot have it."""

    def settled(self) -> None:
        """Returns when the other ranks have done what was ordered."""

    def deliver(self, parts: Sequence[Tensor]) -> None:
        """Sends each other rank its part."""

    def deliver_same(self, data: Tensor) -> None:
        """Sends all other ranks the same."""


class GatheredModel(FlatModel):
    """Holds the trained parameters of all ranks as one vector, in the order of a plain `FlatModel` of the same model.

    layouts: of all ranks, by kind (WEIGHTS, REST). sends: for each kind and rank, the numbers of the tensors that it
    sends (`owners`).
    """

    def __init__(
        self,
        parts: LocalParts,
        link: RankLink,
        layouts: Mapping[str, Sequence[PartLayout]],
        sends: Mapping[str, Sequence[Sequence[int]]],
    ) -> None:
        self._parts, self._link, self._state = parts, link, LocalState(parts)
        self._layouts = {**layouts, GRADIENTS: layouts[WEIGHTS]}
        self._sends = {**sends, GRADIENTS: sends[WEIGHTS]}
        self._alike = {kind: all(layout == of[0] for layout in of) for kind, of in self._layouts.items()}
        self.whole, trained = _whole_module(parts)
        self.stand_in = _grouped(trained, parts)
        super().__init__(self.whole, optimizer=self.stand_in)
        self._rest_of_whole: dict[str, Tensor] = dict(_named_tensors(self.whole, set(parts.rest)))
        self._versions: list[int] | None = None
        self.draws_on = False  # do the ranks' random numbers go on where a checkpoint was made?
        room = link.share(len(self))
        self._room = None if room is None else parts.cut(room)
        self._gather(WEIGHTS)
        self._gather(REST)
        self.rest = _SharedByRanks(self.whole, trained, lambda: self._spread(REST))
        parts.optimizer.register_step_pre_hook(lambda *_: self._link.order("step"))

    # ---- what differs from a model of one process --------------------------------------------------------
    in_ranks = True

    @property
    def parameters(self) -> list[nn.Parameter]:
        """Returns this rank's own trained parameters, in the order of the vector."""
        return self._parts.parameters

    def show_all(self) -> None:
        """Gives all ranks the weights and the rest that `whole` has now."""
        self._spread(WEIGHTS)
        self._spread(REST)

    def share_rest(self) -> None:
        """Gives all ranks the buffers of the first one, and what else is not trained as its owners have it."""
        if self._parts.length(REST):
            self._gather(REST)
            self._spread(REST)

    # ---- weights -----------------------------------------------------------------------------------------
    def load(self, w: AnyFlat, *, late: bool = False) -> None:
        """Takes the weights `w` and gives each rank its part. `late` is not heeded: parts leave as a whole."""
        before = self._loaded
        if before is not None and w.same_as(before) and self._fresh:
            return
        super().load(w)
        self._spread(WEIGHTS)

    def weights(self) -> AnyFlat:
        """Returns the weights of all ranks as they are now."""
        if not self._fresh:
            self._gather(WEIGHTS)
            self._note()
        return super().weights()

    def touched(self) -> None:
        """Notes that the ranks have changed their weights."""
        super().touched()
        self._versions = None

    @contextlib.contextmanager
    def showing(self, w: AnyFlat) -> Iterator[nn.Module]:
        """Gives all ranks the weights `w` within the context, and their own again after it."""
        self._link.order("keep")
        self._parts.keep()
        shown = torch.empty(len(self))
        w.copy_into(shown)
        self._spread(WEIGHTS, shown)
        try:
            yield self._parts.module
        finally:
            self._link.order("restore")
            self._parts.restore()

    @property
    def _fresh(self) -> bool:
        """Returns True if the whole weights are those of the ranks."""
        return self._versions is not None and self._versions == list(map(_version_of, self.parameters))

    def _note(self) -> None:
        """Notes that the whole weights are those of the ranks."""
        self._versions = list(map(_version_of, self.parameters))

    # ---- gradient ----------------------------------------------------------------------------------------
    def zero_grad(self) -> None:
        """Prepares a backward pass on all ranks."""
        super().zero_grad()
        self._link.order("zero_grad")
        self._parts.zero_grad()

    def gradient(self) -> AnyFlat:
        """Returns the gradients of all ranks as one vector."""
        if self._gradient.lent:
            self._switch()
        for i, used in enumerate(self._parts.used()):
            self._used.set(i, used)
        self._gather(GRADIENTS)
        return self._gradient.lend()

    @property
    def has_gradient(self) -> bool:
        """Returns True if any parameter of this rank has a gradient."""
        return any(self._parts.used())

    @property
    def gradient_is_zero(self) -> bool:
        """Returns True if every number of the gradients of all ranks is exactly zero."""
        self._link.order("is_zero")
        others = self._link.collect([1] * self._others, torch.float32)
        return self._parts.gradient_is_zero() and all(bool(other) for other in others)

    def clip_gradients(self, norm: float) -> None:
        """Shortens the gradient of all ranks together."""
        self._link.order("clip", norm=norm)
        self._parts.clip(norm)

    def reset_others(self) -> None:
        """Tells the other ranks to drop the state of their optimizers."""
        self._link.order("reset")

    # ---- random numbers ------------------------------------------------------------------------------------
    def generator_states(self) -> list[Tensor]:
        """Returns the states of the ranks' generators, as bytes: for each rank those of all, one behind the other."""
        own = torch.cat(self._parts.generators())
        self._link.order("give_draws")
        return [own, *self._link.collect([len(own)] * self._others, torch.uint8)]

    def set_generator_states(self, states: Sequence[Tensor]) -> None:
        """Sets the ranks' generators to what `generator_states` has returned; does nothing for another number of ranks
        or another kind of device."""
        own = self._parts.generators()
        length = sum(map(len, own))
        if [len(state) for state in states] == [length] * (self._others + 1):
            self._link.order("take_draws", length=length)
            self._link.deliver(states[1:])
            self._parts.set_generators(torch.split(states[0], [len(state) for state in own]))
            self.draws_on = True

    # ---- optimizers --------------------------------------------------------------------------------------
    def optimizer_state(self) -> dict[str, Tensor | float]:
        """Returns what the ranks' optimizers remember, packed as that of one process; {} where it cannot be joined.

        That is so where ranks hold parts of the model, and a tensor of the state has not the shape of its parameter.
        """
        if self._alike[WEIGHTS]:
            return self._state.take()
        if not self._state.is_by_blocks:
            return {}
        own, sends, layouts = self._state.take(), self._sends[WEIGHTS], self._layouts[WEIGHTS]
        names = [name for name, v in own.items() if isinstance(v, Tensor)]
        self._link.order("give_state", names=names)
        lengths = [
            _length(self._homes(WEIGHTS), of, numbers, WEIGHTS) for of, numbers in zip(layouts, sends, strict=True)
        ]
        found = dict(own)
        for name in names:
            whole = torch.zeros(len(self))
            parts = [self._state.owned(own, name, sends[0]), *self._link.collect(lengths[1:], torch.float32)]
            self._fill(WEIGHTS, self._parts.cut(whole), parts)
            found[name] = whole
        return found

    def load_optimizer_state(self, state: Mapping[str, Any]) -> None:
        """Gives each rank's optimizer its part of what `optimizer_state` has returned, of whatever ranks.

        Tensors of other shapes than the parameters' cannot be cut: with such a state the optimizers begin anew.
        """
        if not self._alike[WEIGHTS] and any(name.startswith(PACKED) for name in state):
            return
        numbers = {name: v for name, v in state.items() if not isinstance(v, Tensor)}
        vectors = {name: v for name, v in state.items() if isinstance(v, Tensor)}
        self._link.order("take_state", numbers=numbers, names=[*vectors])
        own: dict[str, Tensor] = {}
        for name, vector in vectors.items():
            homes = self._parts.cut(vector.float())
            blocks = [_blocks(homes, layout, WEIGHTS) for layout in self._layouts[WEIGHTS]]
            own[name] = blocks[0]
            self._link.deliver(blocks[1:])
        self._state.load({**numbers, **own})

    def show_unused(self) -> None:
        """Does nothing: on the ranks a parameter without a gradient has None already."""

    def release(self) -> None:
        """Leaves the module to its owner, without gradients."""
        super().release()
        self._parts.zero_grad()

    # ---- between the ranks -------------------------------------------------------------------------------
    @property
    def _others(self) -> int:
        """Returns how many other ranks there are."""
        return len(self._layouts[WEIGHTS]) - 1

    def _homes(self, kind: str) -> Sequence[Tensor]:
        """Returns the whole tensors of that kind, in the order of the layouts."""
        if kind == REST:
            return [self._rest_of_whole[name] for name in self._parts.rest]
        return self._gradient.views if kind == GRADIENTS else [p.detach() for p in self._parameters]

    def _gather(self, kind: str) -> None:
        """Writes the blocks of all ranks into the whole tensors."""
        sends, layouts, homes = self._sends[kind], self._layouts[kind], self._homes(kind)
        if self._room is not None and kind != REST and any(sends[1:]):
            self._gather_from_room(kind, homes, self._room)
            return
        dtype = torch.uint8 if kind == REST else torch.float32
        if any(sends[1:]):
            self._link.order("send", kind=kind)
            lengths = [_length(homes, of, numbers, kind) for of, numbers in zip(layouts, sends, strict=True)]
            received = self._link.collect(lengths[1:], dtype)
        else:
            received = [torch.empty(0, dtype=dtype)] * self._others
        self._fill(kind, homes, [self._parts.pack(kind, sends[0]), *received])

    def _gather_from_room(self, kind: str, homes: Sequence[Tensor], room: Sequence[Tensor]) -> None:
        """Writes the blocks of all ranks into the whole tensors, those of the others from the memory of all."""
        self._link.order("write", kind=kind)
        with torch.no_grad():
            self._parts.write(kind, self._sends[kind][0], homes)
            self._link.settled()
            for layout, numbers in zip(self._layouts[kind][1:], self._sends[kind][1:], strict=True):
                for i in numbers:
                    layout.blocks[i].of(homes[i]).copy_(layout.blocks[i].of(room[i]))

    def _spread_from_room(self, homes: Sequence[Tensor], room: Sequence[Tensor]) -> None:
        """Gives each rank its blocks of the whole weights through the memory of all."""
        with torch.no_grad():
            for place, home in zip(room, homes, strict=True):
                place.copy_(home)
            self._link.order("read")
            self._parts.read(homes)
            self._link.settled()  # before anybody writes there again

    def _fill(self, kind: str, homes: Sequence[Tensor], parts: Sequence[Tensor]) -> None:
        """Writes what each rank has sent, its blocks one behind the other, into the whole tensors."""
        with torch.no_grad():
            for layout, numbers, data in zip(self._layouts[kind], self._sends[kind], parts, strict=True):
                at = 0
                for i in numbers:
                    home = layout.blocks[i].of(homes[i])
                    size = home.numel() * (home.element_size() if kind == REST else 1)
                    part = data[at : at + size]
                    home.copy_((part.clone().view(home.dtype) if kind == REST else part).view(home.shape))
                    at += size

    def _spread(self, kind: str, vector: Tensor | None = None) -> None:
        """Gives each rank its blocks of the whole tensors, or of `vector`, weights that are not kept."""
        homes = self._homes(kind) if vector is None else self._parts.cut(vector)
        layouts = self._layouts[kind]
        if self._room is not None and kind == WEIGHTS:
            self._spread_from_room(homes, self._room)
            return
        own = _blocks(homes, layouts[0], kind)
        if self._alike[kind]:
            self._link.order("take", kind=kind, length=len(own), same=True)
            self._link.deliver_same(own)
        else:
            self._link.order("take", kind=kind, same=False)
            self._link.deliver([_blocks(homes, layout, kind) for layout in layouts[1:]])
        self._parts.unpack(kind, own)
        if kind == WEIGHTS and vector is None:
            self._note()


class _SharedByRanks(Rest):
    """Reads and writes the rest of the whole model; what is loaded goes to all ranks."""

    def __init__(self, module: nn.Module, trained: Mapping[str, nn.Parameter], spread: Any) -> None:
        super().__init__(module, trained)
        self._spread = spread

    def loaded(self) -> None:
        self._spread()


# ---- the whole module ----------------------------------------------------------------------------------------------
def _whole_module(parts: LocalParts) -> tuple[nn.Module, dict[str, nn.Parameter]]:
    """Returns a module with all parameters and buffers in full, on the host, and the trained ones among them.

    Their names, and those of its state_dict, are the real module's. The numbers of parameters are not set yet.
    """
    whole = nn.Module()
    made: dict[int, nn.Parameter] = {}
    trained: dict[str, nn.Parameter] = {}
    for name, p in parts.module.named_parameters(remove_duplicate=False):
        if id(p) not in made:
            made[id(p)] = nn.Parameter(torch.zeros(p.shape, dtype=p.dtype), requires_grad=p.requires_grad)
        _owner(whole, name).register_parameter(name.rpartition(".")[2], made[id(p)])
    trained = {name: made[id(p)] for name, p in parts.trained.items()}
    for prefix, module in parts.module.named_modules():
        for name, buffer in module._buffers.items():
            if buffer is not None:
                path = f"{prefix}.{name}" if prefix else name
                kept = name not in module._non_persistent_buffers_set
                copy = torch.zeros(buffer.shape, dtype=local_of(buffer).dtype)
                _owner(whole, path).register_buffer(name, copy, persistent=kept)
    return whole, trained


def _owner(whole: nn.Module, name: str) -> nn.Module:
    """Returns the module within `whole` that has the tensor of that name; it is made where there is none."""
    for part in name.split(".")[:-1]:
        if part not in whole._modules:
            whole.add_module(part, nn.Module())
        found = whole._modules[part]
        assert found is not None
        whole = found
    return whole


def _grouped(trained: Mapping[str, nn.Parameter], parts: LocalParts) -> torch.optim.Optimizer:
    """Returns an optimizer that has the whole parameters in the groups of the real ones; it never makes a step."""
    whole = {p: trained[name] for name, p in parts.trained.items()}
    groups = [[whole[p] for p in group["params"] if p in whole] for group in parts.optimizer.param_groups]
    return torch.optim.SGD([{"params": group} for group in groups if group], lr=0.0)


def _named_tensors(module: nn.Module, names: set[str]) -> Iterator[tuple[str, Tensor]]:
    """Yields the parameters and buffers with these names."""
    for name, p in module.named_parameters():
        if name in names:
            yield name, p.detach()
    for name, buffer in module.named_buffers():
        if name in names:
            yield name, buffer


# ---- vectors between the ranks ---------------------------------------------------------------------------------------
def _length(homes: Sequence[Tensor], layout: PartLayout, numbers: Sequence[int], kind: str) -> int:
    """Returns how long the vector of these blocks is."""
    return sum(layout.blocks[i].numel * (homes[i].element_size() if kind == REST else 1) for i in numbers)


def _blocks(homes: Sequence[Tensor], layout: PartLayout, kind: str) -> Tensor:
    """Returns the blocks that a rank holds, one behind the other."""
    found = [block.of(home).reshape(-1) for block, home in zip(layout.blocks, homes, strict=True)]
    if kind == REST:
        found = [part.contiguous().view(torch.uint8) for part in found]
    return torch.cat(found) if found else torch.empty(0, dtype=torch.uint8)
