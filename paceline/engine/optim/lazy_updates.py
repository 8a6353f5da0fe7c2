"""Updates lazily: the optimizer leaves the rows of a table alone whose gradient is zero.

    rows in the gradient     w, and the optimizer's memory of them, as torch.optim updates them (SGD, Adam, AdamW)
    all other rows           as they are: no momentum goes on, no weight decays, no moment fades
    what is in no table      as ever

Adam's bias correction counts all updates, whichever rows they had. This is MXNet's lazy_update and, but for the place
of epsilon, torch's SparseAdam. Use it for embeddings that are trained with momentum or Adam, whose untouched rows would
otherwise move in every update. It is another optimizer: rows that are seldom used remember more.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, cast

import torch
from torch import Tensor, nn

from paceline.core.errors import ConfigError
from paceline.core.spans import Spans, merged, within
from paceline.engine.optim.optimizers import CONSTANT, ServerOptimizer, make_rule, set_numbers, torch_optimizer
from paceline.engine.sparse.persistent_table import PersistentTable
from paceline.engine.sparse.rows import Rows
from paceline.engine.sparse.sparse_vector import AnyFlat, SparseFlat
from paceline.engine.sparse.table_layout import Tables
from paceline.engine.specs import OptimizerRecipe, ScheduleRecipe
from paceline.engine.vectors.flat import Flat

_MEMORY = {"sgd": ("momentum_buffer",), "adam": ("exp_avg", "exp_avg_sq"), "adamw": ("exp_avg", "exp_avg_sq")}


class Lazy(ServerOptimizer):
    """Applies the rule of `recipe` lazily.

    Raises ConfigError for an optimizer that does not work element by element.
    """

    by_rows = True

    def __init__(self, recipe: OptimizerRecipe, schedule: ScheduleRecipe = CONSTANT) -> None:
        super().__init__(recipe, schedule)
        if recipe.name not in _MEMORY:
            raise ConfigError(f"lazy updates are for {', '.join(_MEMORY)}, not for {recipe.name}: leave lazy out")
        self._whole = make_rule(dataclasses.replace(recipe, lazy=False))
        self._names = () if recipe.name == "sgd" and not recipe.momentum else _MEMORY[recipe.name]
        self._parameter = nn.Parameter(torch.empty(0))
        self._optimizer = torch_optimizer(recipe, self._parameter)
        self._memory: dict[str, Tensor] = {}  # by table and name, as high and wide as the table
        self._updates = 0

    def apply(self, w: AnyFlat, g: AnyFlat, lr: float, unused: Spans = ()) -> Any:
        """Updates the dense part as a whole, and of each table the rows in `g`. A vector without tables is updated as
        usual.
        """
        if isinstance(g, Flat) and isinstance(w, Flat):
            return self._whole.apply(w, g, lr, unused)
        where = cast(SparseFlat, g if isinstance(g, SparseFlat) else w).where
        w, g = _with_tables(w, where), _with_tables(g, where)
        if unused:
            pieces = (within(unused, there.start, there.stop, here.start) for there, here in where.packed)
            unused = merged(itertools.chain(*pieces))
        dense = self._whole.apply(w.dense, g.dense, lr, unused) if len(w.dense) else w.dense
        self._optimizer.param_groups[0]["lr"] = lr
        tables = [self._update(i, *pair) for i, pair in enumerate(zip(w.tables, g.tables, strict=True))]
        self._updates += 1
        return SparseFlat(where, dense, tuple(tables))

    def follow(self, recipe: OptimizerRecipe) -> None:
        super().follow(recipe)
        self._whole.follow(dataclasses.replace(recipe, lazy=False))
        set_numbers(self._optimizer.param_groups[0], recipe)
        self._names = () if recipe.name == "sgd" and not recipe.momentum else _MEMORY[recipe.name]

    def reset(self) -> None:
        self._whole.reset()
        self._memory, self._updates = {}, 0

    def _update(self, table: int, w: PersistentTable | Rows, g: PersistentTable | Rows) -> PersistentTable:
        """Applies the optimizer to the rows that the gradient has, with their part of its memory,
        and puts both back.
        """
        assert isinstance(w, PersistentTable)
        g = g if isinstance(g, Rows) else Rows.of_dense(g.whole())
        if not len(g.rows):
            return w
        memories = {name: self._memory_of(f"{table}.{name}", w) for name in self._names}
        state = {name: memory.index_select(0, g.rows) for name, memory in memories.items()}
        p = self._parameter
        p.grad = None  # of another shape before
        p.data, p.grad = w.gather(g.rows), g.matrix()
        self._optimizer.state[p] = {**state, "step": torch.tensor(float(self._updates))}
        self._optimizer.step()
        for name, memory in memories.items():
            memory.index_copy_(0, g.rows, self._optimizer.state[p][name])
        return w.replaced(g.rows, p.data)

    def _memory_of(self, key: str, w: PersistentTable) -> Tensor:
        """Returns the memory of a table, zeros at first, float32 [height, width]."""
        if key not in self._memory:
            self._memory[key] = torch.zeros(w.height, w.width)
        return self._memory[key]

    def state(self) -> dict[str, Tensor | float | int]:
        whole = {f"whole.{key}": value for key, value in self._whole.state().items()}
        tables = {f"table.{key}": memory.clone() for key, memory in self._memory.items()}
        return {**super().state(), **whole, **tables, "updates": self._updates}

    def load_state(self, state: dict[str, Tensor | float | int]) -> None:
        super().load_state(state)
        self._updates = int(state["updates"])
        parts = [(*key.partition("."), value) for key, value in state.items()]
        self._whole.load_state({key: value for part, _, key, value in parts if part == "whole"})
        self._memory = {k: v.clone() for part, _, k, v in parts if part == "table" and isinstance(v, Tensor)}


def _with_tables(v: AnyFlat, where: Tables) -> SparseFlat:
    """Returns a vector with these tables in it; one that has them already is returned itself."""
    if isinstance(v, SparseFlat) and v.where == where:
        return v
    return SparseFlat.weights(v.flat() if isinstance(v, SparseFlat) else v, where)
