"""Does PowerSGD's arithmetic on one worker (`paceline.codec.algorithms.powersgd` has the algorithm and its source)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline.engine.vectors.buffer_pool import spare
from paceline.engine.vectors.flat import Flat

SEED = 714  # of the first Q; the same on every worker


@dataclass(frozen=True, slots=True)
class _Matrix:
    """A tensor of the model is taken as an n x m matrix; `where` it lies in the vector."""

    where: slice
    n: int
    m: int

    def of(self, v: Tensor) -> Tensor:
        """Returns the matrix in a flat vector, as a view [n, m]."""
        return v[self.where].view(self.n, self.m)


class LowRank:
    """Compresses one worker's vectors. A round is `factor`, its mean, `cofactor`, its mean, `result`.

    Between rounds it keeps the residual and Q. shapes: of the model's tensors, in the order of the vector.
    """

    def __init__(self, shapes: Sequence[Sequence[int]], rank: int) -> None:
        self.matrices: list[_Matrix] = []
        self._others: list[slice] = []
        self.left: Tensor | None = None  # the residual
        self._counts = True  # this round's vector has a weight
        self._q: list[Tensor] = []
        self._p: list[Tensor] = []
        self._rest = self._sum = torch.empty(0)
        edges = itertools.pairwise(itertools.accumulate(map(math.prod, shapes), initial=0))
        for shape, (start, stop) in zip(shapes, edges, strict=True):
            n, m = (shape[0], math.prod(shape[1:])) if len(shape) > 1 else (1, stop - start)
            if rank * (n + m) < n * m:
                self.matrices.append(_Matrix(slice(start, stop), n, m))
            else:
                self._others.append(slice(start, stop))
        generator = torch.Generator().manual_seed(SEED)
        self._q = [torch.randn(matrix.m, rank, generator=generator) for matrix in self.matrices]

    def factor(self, v: Flat, weight: float = 1.0) -> Flat:
        """Returns the P of every matrix, before its mean, and all that is no matrix.

        `weight`: of `v` in that mean. Where it is 0, the residual waits for a later round.
        """
        self._sum = spare(len(v), v.device)
        v.copy_into(self._sum)
        self._counts = weight > 0
        if self.left is not None and self._counts:
            self._sum.add_(self.left)
        self._q = [q.to(v.device) for q in self._q]
        p = [(matrix.of(self._sum) @ q).flatten() for matrix, q in zip(self.matrices, self._q, strict=True)]
        return Flat(torch.cat([*p, *(self._sum[where] for where in self._others)]))

    def cofactor(self, mean: Flat) -> Flat:
        """Returns the Q of every matrix, before its mean, from the mean of `factor`.

        The residual is what this worker's own factors do not express: M_i - P Q_i'. In the weighted mean of the round
        that is M - P Q', as the paper has it on each worker. The paper's residual also has M_i - M, how this worker
        differs from the others. Those sum to zero only while weights stay the same; where they follow local steps, it
        made runs diverge.
        """
        numbers = mean.value()
        self._p = [torch.linalg.qr(p)[0] for p in self._pieces(numbers, [matrix.n for matrix in self.matrices])]
        self._rest = numbers[sum(p.numel() for p in self._p) :]
        own = [matrix.of(self._sum).T @ p for matrix, p in zip(self.matrices, self._p, strict=True)]
        for matrix, p, q in zip(self.matrices, self._p, own, strict=True):
            matrix.of(self._sum).addmm_(p, q.T, alpha=-1)
        for where in self._others:
            self._sum[where] = 0.0
        return Flat(torch.cat([q.flatten() for q in own]) if own else numbers[:0])

    def result(self, mean: Flat) -> Flat:
        """Returns the mean of the vectors, as far as two thin matrices can express it, from the mean of `cofactor`."""
        numbers = mean.value()
        self._q = [q.clone() for q in self._pieces(numbers, [matrix.m for matrix in self.matrices])]
        out = spare(len(self._sum), self._sum.device)
        for matrix, p, q in zip(self.matrices, self._p, self._q, strict=True):
            torch.matmul(p, q.T, out=matrix.of(out))
        at = 0
        for where in self._others:
            out[where] = self._rest[at : at + where.stop - where.start]
            at += where.stop - where.start
        if self._counts:
            self.left = self._sum
        return Flat(out)

    def _pieces(self, numbers: Tensor, heights: Sequence[int]) -> Iterator[Tensor]:
        """Yields the matrices [height, rank] that `numbers` has one after the other."""
        at = 0
        for height, q in zip(heights, self._q, strict=True):
            rank = q.shape[1]
            yield numbers[at : at + height * rank].view(height, rank)
            at += height * rank
