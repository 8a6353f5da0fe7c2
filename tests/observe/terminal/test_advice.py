"""The advice: made-up prospects in, sentences out."""

from __future__ import annotations

import dataclasses
from typing import Any

from paceline.observe.terminal.advice import (
    EXACT,
    GOSSIP,
    LATE,
    LOCAL,
    LOSSY,
    Prospect,
    advice_text,
    ranked,
    stable_rate,
    verdict,
)
from tests.observe.fake_runs import summary, worker


def prospect(scheme: str, worker: float = 100.0, **changed: Any) -> Prospect:
    fields: dict[str, Any] = {
        "worker_bytes": 8,
        "server_bytes": 4,
        "local": False,
        "own_models": False,
        "unseen": "",
    }
    own = {name: changed.pop(name) for name in list(changed) if name in fields}
    team = {"workers": changed.pop("workers")} if "workers" in changed else {}
    made = summary(scheme, samples=round(10 * worker), target_accuracy=None, seconds_to_target=None, **changed)
    made = dataclasses.replace(made, samples_per_second=worker, **team)
    return Prospect(summary=made, **fields | own)


def stale(mean: float) -> dict[str, Any]:
    return {"workers": tuple(worker(rank, staleness_mean=mean) for rank in range(4))}


def test_updates_are_told_apart_by_how_they_come_about() -> None:
    assert prospect("a").kind == EXACT
    assert prospect("a", **stale(0.0)).kind == EXACT
    assert prospect("a", **stale(1.5)).kind == LATE
    assert prospect("a", local=True).kind == LOCAL
    assert prospect("a", own_models=True).kind == GOSSIP
    assert prospect("a", dropped=500).kind == LOSSY
    uneven = tuple(worker(rank, exchanges=100 + 5 * rank) for rank in range(4))
    assert prospect("a", workers=uneven).kind == LATE


def test_the_table_says_the_goodput_of_each_scheme() -> None:
    lines = advice_text([prospect("steady", 100, goodput=0.91), prospect("gossiping", 90)], ()).splitlines()
    head, first, second = (line.split() for line in lines[:3])
    place = head.index("good")
    assert (first[place], second[place]) == ("91%", "-")
    assert "goodput" in " ".join(lines)


def test_work_thrown_away_does_not_count_as_pace() -> None:
    lossy, whole = prospect("lossy", 120, dropped=600), prospect("whole", 100)
    assert lossy.samples_per_second == 60
    assert ranked([lossy, whole]) == [whole, lossy]


def test_a_lead_is_put_as_the_samples_it_may_cost() -> None:
    lines = verdict([prospect("safe", 100), prospect("quick", 250, **stale(3.0))])
    assert lines[0].startswith("Without risk: safe, 100 samples/s")
    assert "unless it needs more than 2.50 times as many samples" in lines[1]
    assert "3.0 versions late" in lines[1]


def test_what_lateness_asks_of_the_learning_rate_is_said_unless_late_gradients_count_less() -> None:
    plain, weighed = (
        prospect("asp", 250, **stale(15.0), parameters={"weighting": rule}) for rule in ("none", "inverse")
    )
    assert "only up to 5% of" in verdict([prospect("safe", 100), plain])[1]
    assert "stable" not in verdict([prospect("safe", 100), weighed])[1]


def test_the_stable_rate_is_where_sgd_on_a_parabola_with_late_gradients_turns_from_falling_to_growing() -> None:
    for late in (0, 1, 4, 15):
        ends = []
        for part in (0.98, 1.02):
            w = [1.0] * (late + 1)
            for _ in range(20000):
                w.append(w[-1] - 2 * part * stable_rate(late) * w[-1 - late])
                if abs(w[-1]) > 1e6:
                    break
            ends.append(max(map(abs, w[-50:])))
        assert ends[0] < 1e-3
        assert ends[1] > 1e3


def test_a_small_lead_is_not_worth_another_scheme() -> None:
    assert "nothing to gain" in verdict([prospect("safe", 100), prospect("quick", 105, **stale(3.0))])[1]


def test_without_an_exact_scheme_nothing_is_called_safe() -> None:
    lines = verdict([prospect("quick", 105, **stale(3.0))])
    assert len(lines) == 1
    assert "nothing safe to compare it with" in lines[0]


def test_a_narrow_network_points_to_who_sends_least() -> None:
    busy = tuple(worker(rank, seconds_communicating=9.0) for rank in range(4))
    few = {"bytes_up": 10**6, "bytes_down": 10**6}
    lines = verdict([prospect("safe", workers=busy), prospect("thrifty", 200, local=True, **few)])
    assert "Communication holds safe back" in lines[-1]
    assert "thrifty sends 46.0 times fewer bytes a sample" in lines[-1]


def test_a_scheme_that_was_seen_in_part_is_named() -> None:
    text = advice_text([prospect("safe"), prospect("hybrid", unseen="esync, after bsp until 100 steps")], [])
    assert "hybrid was seen in part: not esync, after bsp until 100 steps." in text
    assert "safe was" not in text


def test_what_was_left_out_and_what_is_unknown_is_said() -> None:
    text = advice_text([prospect("safe")], [("other", "it needs servers")])
    assert "other: it needs servers" in text
    assert "how many samples your model needs under each scheme" in text
