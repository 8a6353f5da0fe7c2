"""What a wrong setting is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import strategies as st

from paceline.core.errors import ConfigError


def refusal(call: Callable[[], object]) -> str:
    """The message of the ConfigError, which is one line that can stand alone."""
    with pytest.raises(ConfigError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    assert message
    return message


def told(error: ConfigError) -> bool:
    return "\n" not in str(error) and len(str(error)) > 5


_scalar = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["auto", "fractions:1", "dirichlet:nan", "file:", "0;1", "cuda:0", "cpu,cpu,cpu,cpu"]),
)


_value = st.one_of(_scalar, st.lists(_scalar, max_size=5), st.dictionaries(st.text(max_size=3), _scalar, max_size=2))
