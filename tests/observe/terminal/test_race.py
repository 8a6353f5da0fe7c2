"""Who won, by how much and why, in a table and a sentence."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from paceline.observe.formatting.number_format import count_text, seconds_text
from paceline.observe.runs.summary import Summary
from paceline.observe.terminal.race import labels, race_table, race_text, ranking, why
from tests.observe.fake_runs import summary

BSP = summary("bsp", waiting=0.71, seconds_to_target=29.93, seconds=30.0, samples_per_second=300.0)
ESYNC = summary("esync", waiting=0.06, seconds_to_target=4.1, seconds=4.2, samples_per_second=2000.0)
ASP = summary("asp", waiting=0.0, seconds_to_target=None, test_accuracy=0.85, seconds=40.0, reason="epochs done")
SSP = replace(ASP, scheme="ssp", test_accuracy=0.87)


def text_of(summaries: list[Summary]) -> str:
    console = Console(record=True, width=80, file=io.StringIO())
    console.print(race_table(summaries))
    return console.export_text()


def test_the_first_at_the_target_wins_and_those_that_missed_it_come_by_accuracy() -> None:
    assert [s.scheme for s in ranking([ASP, BSP, SSP, ESYNC])] == ["esync", "bsp", "ssp", "asp"]


def test_the_table_has_one_line_a_scheme_marks_the_winner_and_fits_80_columns() -> None:
    lines = text_of([ASP, BSP, SSP, ESYNC]).splitlines()
    assert max(len(line) for line in lines) <= 80
    rows = [line.split() for line in lines[2:6]]
    assert rows[0] == [
        "*",
        "esync",
        "4.1",
        "s",
        "7.3",
        "0.910",
        "10.0k",
        "2000",
        "6%",
        "-",
        "46.0",
        "target",
        "reached",
    ]
    assert rows[1][:5] == ["bsp", "29.9", "s", "1.0", "0.910"]
    assert rows[2][:4] == ["ssp", "missed", "-", "0.870"]
    assert rows[3][:4] == ["asp", "missed", "-", "0.850"]


def test_the_plain_text_says_the_same_as_the_table() -> None:
    words = race_text([ASP, BSP, SSP, ESYNC]).split()
    assert words == [word for word in text_of([ASP, BSP, SSP, ESYNC]).split() if not word.startswith("─")]


def test_goodput_stands_beside_waiting_where_it_is_known() -> None:
    head, first, second, *_ = race_text([replace(BSP, goodput=0.27), replace(ESYNC, goodput=0.884)]).splitlines()
    assert head.split()[6:8] == ["wait", "good"]
    assert [next(w for w in row.split() if w in ("88%", "27%")) for row in (first, second)] == ["88%", "27%"]


def test_with_the_goodput_a_row_of_a_run_still_has_one_line_of_80_columns() -> None:
    lines = text_of([replace(run, goodput=0.5, reason="seconds") for run in (ASP, BSP, SSP, ESYNC)]).splitlines()
    assert max(len(line) for line in lines) <= 80
    assert [line.split()[-1] for line in lines[2:6]] == ["seconds"] * 4


def test_less_waiting_is_given_as_the_reason_where_it_made_the_difference() -> None:
    assert why([BSP, ESYNC]) == (
        "esync reached 0.9 in 4.1 s, 7.3 times as fast as bsp: "
        "its workers spent 6% of their time waiting, under bsp 71%."
    )


def test_fewer_samples_are_given_as_the_reason_where_they_made_the_difference() -> None:
    frugal = replace(BSP, seconds_to_target=10.0)
    wasteful = replace(ESYNC, seconds_to_target=20.0)
    assert why([frugal, wasteful]) == (
        "bsp reached 0.9 in 10.0 s, 2.0 times as fast as esync: it needed 3000 samples, esync 40.0k."
    )


def test_more_samples_a_second_are_the_reason_where_nobody_waits_less() -> None:
    slow = replace(BSP, workers=ESYNC.workers)
    assert "through 2000 samples/s, under bsp through 300." in why([slow, ESYNC])


def test_a_winner_over_one_that_missed_the_target_says_so() -> None:
    assert why([replace(ASP, scheme="bsp"), ESYNC]).startswith(
        "esync reached 0.9 in 4.1 s; bsp did not within 40.0 s: "
    )


@pytest.mark.parametrize(
    ("summaries", "sentence"),
    [
        ([], "Nothing was run."),
        ([ESYNC], "esync reached 0.9 in 4.1 s."),
        ([ASP], "asp did not reach 0.9; it came to 0.850."),
        ([ASP, SSP], "No scheme reached 0.9; ssp came closest with 0.870."),
        ([replace(ASP, target_accuracy=None)], "asp ended with accuracy 0.850 after 40.0 s."),
        ([replace(ASP, test_accuracy=None)], "No accuracy was measured, so there is no winner."),
        (
            [ESYNC, replace(ESYNC, scheme="gsp", seconds_to_target=4.15)],
            "esync reached 0.9 in 4.1 s, about as fast as gsp, the next (4.2 s).",
        ),
    ],
)
def test_the_sentence_is_true_in_every_case(summaries: list[Summary], sentence: str) -> None:
    assert why(summaries) == sentence


def test_without_bsp_the_first_scheme_is_what_the_others_are_compared_with() -> None:
    gsp = replace(BSP, scheme="gsp")
    assert "times as fast as gsp" in why([gsp, replace(BSP, scheme="ssp", seconds_to_target=20.0), ESYNC])


def test_runs_of_one_scheme_are_told_apart_by_parameters_seed_or_number() -> None:
    loose, tight = (summary("ssp", parameters={"staleness": s, "weighting": "none"}) for s in (9, 1))
    assert labels([BSP, loose, tight]) == ["bsp", "ssp staleness=9", "ssp staleness=1"]
    assert labels([BSP, replace(BSP, seed=1)]) == ["bsp seed=0", "bsp seed=1"]
    assert labels([BSP, replace(BSP)]) == ["bsp #1", "bsp #2"]


def test_an_empty_race_is_a_table_with_nothing_in_it() -> None:
    assert "Nothing was run." in text_of([])
    assert "Nothing was run." in race_text([])


def test_numbers_are_short_and_never_lie_by_a_unit() -> None:
    assert [seconds_text(s) for s in (0.0, 0.994, 0.999, 119.94, 119.96, 3599, 7200)] == [
        *("0.00 s", "0.99 s", "1.0 s", "119.9 s", "2 min 00 s", "59 min 59 s", "2 h 00 min"),
    ]
    assert [count_text(c) for c in (0, 0.5, 7.25, 9999, 9999.6, 99_950, 999_500, 1e6, 5e12)] == [
        *("0", "0.50", "7.25", "9999", "10.0k", "100k", "1.0M", "1.0M", "5.0T"),
    ]


def test_where_nothing_was_evaluated_nobody_is_marked_as_the_winner() -> None:
    runs = [summary(name, test_accuracy=None, seconds_to_target=None, target_accuracy=None) for name in ("bsp", "asp")]
    assert "*" not in race_text(runs)
    assert "there is no winner" in race_text(runs)


def test_where_scripts_report_losses_only_the_lowest_wins() -> None:
    none = {"test_accuracy": None, "target_accuracy": None, "seconds_to_target": None}
    runs = [replace(BSP, **none, test_loss=0.7), replace(ASP, **none, test_loss=0.25), replace(ESYNC, **none)]
    assert [s.scheme for s in ranking(runs)] == ["asp", "bsp", "esync"]
    head, winner, *_ = race_text(runs).splitlines()
    assert head.split()[3] == "loss"
    assert (winner.split()[:2], winner.split()[4]) == (["*", "asp"], "0.25")
    assert why(runs) == "asp ended with the lowest loss, 0.25, after 40.0 s."
    assert why(runs[:1]) == "bsp ended with loss 0.7 after 30.0 s."


def test_an_accuracy_of_one_run_counts_for_more_than_losses() -> None:
    lossy = replace(BSP, test_accuracy=None, seconds_to_target=None, test_loss=0.1)
    assert [s.scheme for s in ranking([lossy, ASP])] == ["asp", "bsp"]
    assert "loss" not in race_text([lossy, ASP]).splitlines()[0]


def test_a_race_to_a_loss_says_loss_in_table_and_sentence() -> None:
    by_loss = {"test_accuracy": None, "target_accuracy": None, "target_loss": 2.5, "reason": "target loss"}
    bsp = replace(BSP, **by_loss, test_loss=2.4, seconds_to_target=20.0)
    fast = replace(ESYNC, **by_loss, test_loss=2.45, seconds_to_target=10.0)
    text = race_text([bsp, fast])
    assert "loss" in text.splitlines()[0]
    assert [line.split()[-1] for line in text.splitlines()[1:3]] == ["target", "target"]
    assert "esync reached loss 2.5 in 10.0 s, 2.0 times as fast as bsp" in text
    missed = [replace(s, seconds_to_target=None) for s in (bsp, fast)]
    assert why(missed) == "No scheme reached loss 2.5; bsp came closest with 2.4."
