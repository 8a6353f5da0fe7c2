"""Renumbers what an optimizer keeps for single tensors or pieces, which it counts from the beginning of its slice.

    of 3/step/...   of the fourth tensor of the slice (`paceline.engine.optim.packed_state`)
    step from 640   of the piece that begins at number 640 of the slice (`paceline.engine.optim.unused_parameters`)

In a checkpoint they are counted from the beginning of the model, so that slices do not overwrite one another's. A
slice that begins with the model's sixth tensor has `of 3/step` there as `of 8/step`. A later run may have other
slices, and takes from the model's numbers what lies in each.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence

from paceline.core.sharding import Layout

_TENSOR, _PIECE, _STEP = "of ", "step from ", "step"
Numbers = dict[str, float]


def of_model(numbers: Numbers, of_each: Sequence[Numbers], layout: Layout, lengths: Sequence[int]) -> Numbers:
    """Returns `numbers` with those of every slice, counted from the beginning of the model.

    `of_each`: the numbers of each slice; `lengths`: of the model's tensors.
    """
    found = {name: value for name, value in numbers.items() if not name.startswith((_TENSOR, _PIECE))}
    in_pieces = any(name.startswith(_PIECE) for own in of_each for name in own)
    in_pieces |= len({own.get(_STEP, 0.0) for own in of_each}) > 1  # a slice that no gradient came for has made fewer
    for own, part in zip(of_each, layout.slices, strict=True):
        if in_pieces and f"{_PIECE}0" not in own:  # this one is a single piece
            own = own | {f"{_PIECE}0": own.get(_STEP, 0.0)}
        first, _ = tensors_in(part, lengths)
        found |= {shifted: value for name, value in own.items() if (shifted := _shifted(name, first, part.start))}
    return found


def of_slice(numbers: Numbers, part: slice, lengths: Sequence[int]) -> Numbers:
    """Returns the numbers of one slice out of those of the model: the inverse of `of_model`."""
    first, tensors = tensors_in(part, lengths)
    starts = [int(_split(name)[1]) for name in numbers if name.startswith(_PIECE)]
    # The piece in whose middle the slice begins: its number holds for the first part of the slice.
    covers = max((start for start in starts if start <= part.start), default=part.start)
    found: Numbers = {}
    for name, value in numbers.items():
        head, number, _ = _split(name)
        if head == _TENSOR and first <= number < first + tensors:
            found[_shifted(name, -first, 0)] = value
        elif head == _PIECE and (number == covers or part.start < number < part.stop):
            found[f"{_PIECE}{max(0, number - part.start)}"] = value
        elif not head:
            found[name] = value
    return found


def tensors_in(part: slice, lengths: Sequence[int]) -> tuple[int, int]:
    """Returns the number of the first tensor that begins in `part`, and how many begin there."""
    starts = list(itertools.accumulate(lengths, initial=0))[:-1]
    first = bisect.bisect_left(starts, part.start)
    return first, bisect.bisect_left(starts, part.stop) - first


def _shifted(name: str, tensors: int, length: int) -> str:
    """Returns the name as counted from another beginning; "" for a name without a count."""
    head, number, rest = _split(name)
    return f"{head}{number + (tensors if head == _TENSOR else length)}{rest}" if head else ""


def _split(name: str) -> tuple[str, int, str]:
    """Returns kind, number and rest of a name; kind "" for a name without a count."""
    head = next((head for head in (_TENSOR, _PIECE) if name.startswith(head)), "")
    number, slash, rest = name.removeprefix(head).partition("/")
    return (head, int(number), slash + rest) if head else ("", 0, name)
