"""Assertions and random arrays of MXNet's tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from mxnet.context import current_context as default_context
from mxnet.ndarray import NDArray, array

__all__ = ["assert_almost_equal", "assert_exception", "default_context", "environment", "rand_ndarray"]


def _numbers(given: Any) -> Any:
    return given.asnumpy() if isinstance(given, NDArray) else given


def assert_almost_equal(a: Any, b: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    np.testing.assert_allclose(_numbers(a), _numbers(b), rtol=rtol, atol=atol)


def assert_exception(function: Callable[..., Any], kind: type[Exception], *args: Any, **kwargs: Any) -> None:
    try:
        function(*args, **kwargs)
    except kind:
        return
    raise AssertionError(f"{function} did not raise {kind.__name__}")


def rand_ndarray(shape: tuple[int, ...], stype: str = "default") -> NDArray:
    """Returns an array of random numbers; half of the rows of a row_sparse one are zero."""
    numbers = np.random.uniform(-1, 1, shape)
    if stype == "row_sparse":
        numbers[np.random.uniform(size=shape[0]) < 0.5] = 0.0
    return array(numbers).tostype(stype)


@contextmanager
def environment(*names: Any) -> Iterator[None]:
    """Sets variables, given as a name and a value, or as a dict; None takes one away."""
    before = dict(os.environ)
    given = dict([names]) if isinstance(names[0], str) else dict(names[0])
    for key, value in given.items():
        if value is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = value
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
