"""Names are shortened only where they stay apart."""

from __future__ import annotations

from paceline.observe.formatting.columns import short_hosts


def test_names_are_short_only_where_they_stay_apart() -> None:
    assert short_hosts(["a.x", "b.x", "a.x"]) == {"a.x": "a", "b.x": "b"}
    assert short_hosts(["a.x", "a.y"]) == {"a.x": "a.x", "a.y": "a.y"}
    assert short_hosts(["10.0.0.1", "10.0.0.2", ""]) == {"10.0.0.1": "10.0.0.1", "10.0.0.2": "10.0.0.2"}
