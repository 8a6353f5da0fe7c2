"""`raises`, `assert_raises` and `make_decorator`, as nose.tools has them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from unittest import TestCase

assert_raises = TestCase().assertRaises


def make_decorator(test: Callable[..., Any]) -> Callable[..., Any]:
    """Gives a wrapper the name of the test that it wraps."""
    return functools.wraps(test)


def raises(*expected: type[Exception]) -> Callable[..., Any]:
    """The test passes if it raises one of these."""

    def decorated(test: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(test)
        def checked(*args: Any, **kwargs: Any) -> None:
            try:
                test(*args, **kwargs)
            except expected:
                return
            raise AssertionError(f"{test.__name__} raised none of {expected}")

        return checked

    return decorated
