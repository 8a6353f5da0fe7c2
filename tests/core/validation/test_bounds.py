"""What a party may claim in a message: declared beside every field, checked where messages arrive."""

from __future__ import annotations

from paceline.core.message import scalar_fields
from paceline.core.validation.bounds import bounds_of
from tests.core.validation.messages import all_messages, of_the_coordinator


def test_every_scalar_that_anybody_but_the_coordinator_can_send_has_a_declared_bound() -> None:
    without = [
        f"{cls.__module__}.{cls.__qualname__}.{field}"
        for cls in all_messages()
        if not of_the_coordinator(cls)
        for field, bound in bounds_of(cls).items()
        if bound is None
    ]
    assert not without
    assert len([cls for cls in all_messages() if scalar_fields(cls)]) > 50  # they were found
