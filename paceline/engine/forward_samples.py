"""Counts the samples of a step by what the model was called with, for loops that do not give their number.

    forward of 48 samples     a call; the length of its first tensor is 48
    backward                  it comes through the output of that call, so the call counts: 48
    forward of 16, backward   the model was called in between, so these are other samples: 64
    take()                    64; the next step begins at 0

Three rules follow from that.

- A call whose gradient is in no step does not count: an evaluation, a batch that the loop skips.
- The calls that backward passes come through before the model is called again have the same samples, and the largest
  counts: two views of a batch, the parts of several models, an input one time step after the other, a penalty.
- Gradients that are cleared take along what was counted.

The model is called through `_compiled_call_impl`, an attribute that torch leaves out of what is pickled or copied. A
hook would be in both.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from paceline.core.errors import ConfigError

CALL = "_compiled_call_impl"
OUTPUTS_MAX = 16
"""Tensors of an output that are watched. A language model may return its whole cache behind the loss and the logits."""
SamplesOf = Callable[..., Any]
"""Returns the samples of a call of the model from the arguments of the call: a number, or a tensor with one."""


class ForwardSamples:
    """Counts for one worker.

    has_gradient  returns True if backward has left a gradient that no step has taken
    wanted        returns True while the samples of the loop are to be counted here
    samples_of    counts a call in place of the length of its first tensor
    batch         returns the number of the batch that the loop is at; 0 where it has batches of its own
    """

    batch: Callable[[], int] = staticmethod(lambda: 0)

    def __init__(
        self,
        module: nn.Module,
        has_gradient: Callable[[], bool],
        *,
        wanted: Callable[[], bool] = lambda: True,
        samples_of: SamplesOf | None = None,
    ) -> None:
        self._has_gradient, self.wanted, self._samples_of = has_gradient, wanted, samples_of
        self.by_user = samples_of is not None
        self._numbers = itertools.count()
        # By the number of a call: its micro-batch, its samples, the number of its batch.
        self._counted: dict[int, tuple[int, Any, int]] = {}
        self._called = set[int]()  # the batches in which the model was called
        self._micro_batch = 0
        self._passed = False  # has a backward pass come through a call since the last call?
        called = list(_called(module))
        self.names = " or ".join(dict.fromkeys(map(_name_of, called)))
        self._not_called = f"{self.names} was not called in it (a method was, perhaps, or a compiled function)"
        self._why = self.why_unknown = self._not_called
        self._watched = [(each, vars(each).get(CALL), self._watch(each)) for each in called]

    def _watch(self, module: nn.Module) -> Callable[..., Any]:
        """Puts itself between a module and its callers."""
        inner = vars(module).get(CALL) or module._call_impl

        def call(*args: Any, **kwargs: Any) -> Any:
            output = inner(*args, **kwargs)
            if torch.is_grad_enabled():
                self._note(args, kwargs, output)
            return output

        _leave_uncompiled(call)
        vars(module)[CALL] = call
        return call

    def _note(self, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Notes a call, which counts when a backward pass comes through its output."""
        if torch.compiler.is_compiling() or not self.wanted():
            return
        # What checkpointing computes again, it computes within a backward pass.
        if self._passed and torch._C._current_graph_task_id() < 0:
            self._passed = False
            self._micro_batch += 1
            if self._counted and not self._has_gradient():
                self._counted.clear()  # the loop has cleared what these were of
        samples = self._samples_of(*args, **kwargs) if self._samples_of else _length_of(args, kwargs)
        if samples is None and not self._samples_of:
            self._why = f"{self.names} was called without a tensor that has a dimension"
            return
        nodes = _nodes_of(output)
        what = "no backward pass came through what it returned" if nodes else "it returned no tensor with a gradient"
        self._why = f"{self.names} was called in it, but {what}"
        number, batch = next(self._numbers), self.batch()
        self._called.add(batch)
        for node in nodes[:OUTPUTS_MAX]:
            node.register_prehook(functools.partial(self._reached, number, samples, batch))

    def _reached(self, number: int, samples: Any, batch: int, _gradients: Any) -> None:
        """Counts a call that a backward pass comes through."""
        self._passed = True
        self._counted[number] = self._micro_batch, samples, batch

    def take(self) -> int | None:
        """Returns the samples since the last step; None if nothing was counted, for which `why_unknown` has the reason.
        Raises ConfigError for what is no number of samples."""
        self.why_unknown, self._why = self._why, self._not_called
        largest = self._micro_batches()
        self.cleared()
        return sum(largest) if largest else None

    def _micro_batches(self) -> list[int]:
        """Returns the samples of each micro-batch."""
        largest: dict[int, int] = {}
        for micro_batch, samples, _ in self._counted.values():
            largest[micro_batch] = max(largest.get(micro_batch, 0), number_of(samples))
        return [*largest.values()]

    def trained_among(self, batches: Mapping[int, int], last: Collection[int]) -> int:
        """Returns the samples of those batches, by their numbers, that are in the gradient; `last`: those that the loop
        has not gone on from, which are.

        A batch that the loop went on from without a backward pass counts if one came later through the call that had
        it. Of those without a call, which the loop skipped or took ahead, all or none count: all, if there were as many
        calls or samples as such batches make. Where no call is known, all count.
        """
        found = {batch for _, _, batch in self._counted.values()}
        if not found:
            return sum(batches.values())
        sure = [n for number, n in batches.items() if number in found or number in last]
        ahead = [
            n for number, n in batches.items() if not (number in found or number in last or number in self._called)
        ]
        calls = self._micro_batches()
        if len(calls) >= len(sure) + len(ahead) or sum(calls) >= sum(sure) + sum(ahead):
            sure += ahead
        return sum(sure)

    def cleared(self) -> None:
        """Forgets what was counted: the gradients are gone without a step."""
        self._counted.clear()
        self._called.clear()

    def end(self) -> None:
        """Gives the module back to its owner."""
        self.wanted = lambda: False
        for module, before, call in self._watched:
            if vars(module).get(CALL) is not call:
                continue  # somebody has compiled the module meanwhile
            if before is None:
                del vars(module)[CALL]
            else:
                vars(module)[CALL] = before


def first_dimension(inputs: Any) -> int | None:
    """Returns the length of the first tensor with a dimension in `inputs`, however nested; None if there is none."""
    for leaf in tree_leaves(inputs):
        if isinstance(leaf, Tensor) and leaf.dim():
            return leaf.size(0)
        if isinstance(leaf, Mapping):  # such as a BatchEncoding, which is no dict
            found = first_dimension(dict(leaf))
            if found is not None:
                return found
    return None


def _length_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """Returns the length of the first tensor among arguments. Most models get it first, and a look at it is cheap."""
    first = args[0] if args else next(iter(kwargs.values()), None)
    return first.size(0) if isinstance(first, Tensor) and first.dim() else first_dimension((args, kwargs))


def number_of(samples: Any) -> int:
    """Returns what `samples_of` has returned as a number. Raises ConfigError for what is no whole one, 0 or more."""
    try:
        number = float(samples)
    except (TypeError, ValueError, RuntimeError):
        number = -1.0
    if not (math.isfinite(number) and number >= 0):
        raise ConfigError(f"samples_of returned {samples!r}: it returns how many samples there are, 0 or more")
    if not number.is_integer():
        raise ConfigError(
            f"samples_of returned {number:g}: samples count in whole numbers; for weights that are fractions return "
            "round(1000 * weight), on all workers"
        )
    return int(number)


def _called(module: nn.Module) -> Iterator[nn.Module]:
    """Yields the module; its parts instead if it has no `forward`, as a ModuleDict of several models."""
    own = getattr(type(module), "forward", None)  # a scripted module has it in its instances only
    if own is nn.Module.forward and "forward" not in vars(module):
        for part in module.children():
            yield from _called(part)
    else:
        yield module


def _name_of(module: nn.Module) -> str:
    """Returns the name of the user's class."""
    return type(getattr(module, "_orig_mod", module)).__name__


def _nodes_of(output: Any, depth: int = 3) -> list[Any]:
    """Returns the nodes of the graph that made the tensors in an output, also where it is an object with attributes."""
    if isinstance(output, Tensor):
        return [output.grad_fn] if output.grad_fn is not None else []
    if isinstance(output, Mapping):
        output = output.values()
    elif not isinstance(output, tuple | list):
        output = getattr(output, "__dict__", {}).values()
    return [node for part in output for node in _nodes_of(part, depth - 1)] if depth else []


def _leave_uncompiled(call: Callable[..., Any], *, what_it_calls: bool = False) -> None:
    """Lets `torch.compile` run a function as it is, and compile what that calls unless this is left, too.

    torch has no public way that does not import its compiler, which takes seconds. Where an older torch
    lacks this one, a model that is compiled after it was given to this counter is not counted.
    """
    frames = torch._C._dynamo.eval_frame
    if hasattr(frames, "set_code_exec_strategy"):
        skip, default = frames._FrameAction.SKIP, frames._FrameAction.DEFAULT
        strategy = frames._FrameExecStrategy(skip, skip if what_it_calls else default)
        frames.set_code_exec_strategy(call.__code__, strategy)


_leave_uncompiled(ForwardSamples._note, what_it_calls=True)
