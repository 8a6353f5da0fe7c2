"""Planted bugs in how the others stand a worker that lies; the fuzzer's liars have to find each."""

from __future__ import annotations

import pytest

from paceline.core.validation.bounds import Range
from paceline.core.validation.message_checker import Checker, FalseClaims

Patch = pytest.MonkeyPatch


def a_number_beyond_its_bound_is_taken(patch: Patch) -> None:
    patch.setattr(Range, "fault", lambda self, value, limits: None)
    patch.setattr(Range, "nearest", lambda self, value, limits: value)


def clocks_are_not_checked(patch: Patch) -> None:
    patch.setattr(Checker, "_tick", lambda self, src, stream, cls, message, table: None)


def a_strike_in_two_is_not_counted(patch: Patch) -> None:
    strike = FalseClaims.strike

    def half(self: FalseClaims, src: object, why: str, *, at_once: bool) -> str | None:
        reason = strike(self, src, why, at_once=at_once)
        self.strikes[src] -= self.strikes[src] == 2  # the second is forgotten
        return reason

    patch.setattr(FalseClaims, "strike", half)
