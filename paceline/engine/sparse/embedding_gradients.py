"""Finds the parameters whose gradients come in rows: the weights of `nn.Embedding(sparse=True)` and
`nn.EmbeddingBag`.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from paceline.engine.sparse.rows import HEIGHT_MAX, Rows
from paceline.engine.sparse.sparse_vector import AnyFlat, SparseFlat
from paceline.engine.sparse.table_layout import Tables, TableSpan
from paceline.engine.vectors.flat import Flat


class SparseParameters:
    """Reads the gradients of such parameters of `module`; it is False when there are none.

    `parameters` are all of the module's, in the order of the vector.
    """

    def __init__(self, module: nn.Module, parameters: Sequence[nn.Parameter]) -> None:
        found = {id(part.weight) for part in module.modules() if _is_sparse(part)}
        self.others = [p for p in parameters if id(p) not in found]
        self._found: list[Tensor] = []
        places, at = [], 0
        for p in parameters:
            if id(p) in found:
                self._found.append(p)
                places.append(TableSpan(at, *p.shape))
            at += p.numel()
        self.where = Tables(at, tuple(places))

    def __bool__(self) -> bool:
        return bool(self._found)

    def zero_grad(self) -> None:
        """Drops the gradients: torch would add the next ones to them, row by row."""
        for p in self._found:
            p.grad = None

    def gradient(self, dense: Flat) -> SparseFlat:
        """Returns the gradient of all parameters; `dense` is that of the others."""
        return SparseFlat(self.where, dense, tuple(map(_rows, self._found)))

    def put_gradient(self, g: AnyFlat, others: Tensor) -> None:
        """Gives the tables their part of `g` as their gradient, and writes what belongs to the others over `others`."""
        numbers = g.value()
        for there, here in self.where.packed:
            others[here].copy_(numbers[there])
        for p, place in zip(self._found, self.where.places, strict=True):
            p.grad = numbers[place.start : place.stop].view(p.shape).clone()


def _is_sparse(part: nn.Module) -> bool:
    """Returns True for an embedding whose gradients come in rows, and whose rows a message can number."""
    if not isinstance(part, nn.Embedding | nn.EmbeddingBag) or not part.sparse:
        return False
    weight = part.weight
    return weight.requires_grad and weight.numel() > 0 and len(weight) <= HEIGHT_MAX


def _rows(p: Tensor) -> Rows:
    """Returns the gradient of a table as rows, whichever form it has."""
    if p.grad is None:  # no batch has looked into this table
        return Rows.none(*p.shape)
    # The gradient is dense where the weight has another use too, such as that of an output layer.
    return Rows.of(p.grad) if p.grad.is_sparse else Rows.of_dense(p.grad)
