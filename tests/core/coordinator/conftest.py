"""The coordinator with parties that a test speaks for, as in the tests of `live/`: it has the parts tested here."""

from tests.live.conftest import companies, stage

__all__ = ["companies", "stage"]
