"""Records which parameters a backward pass has reached, so that the others can be left alone as torch leaves them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from paceline.core.spans import Spans, common, merged


class Used:
    """Records this for `parameters`, which lie in the vector between consecutive `edges`.

    It is told by `set`, or, after `watch`, by autograd, which calls a hook for each parameter.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], edges: Sequence[int]) -> None:
        self._parameters, self._edges = parameters, edges
        self._found: set[int] = set()
        self._hooks: list[RemovableHandle] = []

    def watch(self) -> None:
        """Lets autograd tell which parameters backward reaches."""
        self._hooks = [
            p.register_post_accumulate_grad_hook(functools.partial(self._reached, i))  # type: ignore[no-untyped-call]
            for i, p in enumerate(self._parameters)
            if p.requires_grad
        ]

    def _reached(self, i: int, _parameter: Any) -> None:
        """Notes that backward has reached parameter `i`."""
        self._found.add(i)

    def __contains__(self, i: int) -> bool:
        return i in self._found

    def set(self, i: int, used: bool) -> None:
        """Marks a parameter whose gradient somebody has put in its place, or taken away."""
        (self._found.add if used else self._found.discard)(i)

    def all_but(self, unused: Spans) -> None:
        """Marks the parameters that lie outside `unused` as used, and no others."""
        spans = enumerate(itertools.pairwise(self._edges))
        self._found = {i for i, span in spans if not unused or not common(unused, (span,))}

    def clear(self) -> None:
        """Forgets what was reached, before the next backward pass."""
        self._found.clear()

    @property
    def all(self) -> bool:
        """Returns True if every parameter was reached."""
        return len(self._found) == len(self._parameters)

    @property
    def any(self) -> bool:
        """Returns True if any parameter was reached."""
        return bool(self._found)

    def unused(self) -> Spans:
        """Returns where the parameters lie that no pass has reached since `clear`."""
        return () if self.all else self.spans(i for i in range(len(self._parameters)) if i not in self._found)

    def spans(self, numbers: Any) -> Spans:
        """Returns where the parameters of these numbers lie."""
        return merged((self._edges[i], self._edges[i + 1]) for i in numbers)

    def end(self) -> None:
        """Removes the hooks."""
        for hook in self._hooks:
            hook.remove()
