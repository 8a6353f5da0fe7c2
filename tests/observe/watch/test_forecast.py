"""The forecast on the page after an outage, and where it misses the run itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from paceline.cli.support.scheme_forecast import forecasts_of
from paceline.core.trace import Span
from paceline.observe.trace.trace_file import TraceWriter
from paceline.observe.watch.page_data import PageQuery
from paceline.observe.watch.reader import Forecast, Measured, Reader, question, withheld_because

BSP = {"scheme": "bsp", "servers": 1}


def run_with_outage(folder: Path, outage_s: float) -> Path:
    """Two workers of 100 ms a step, an exchange of 10 ms, and one outage in an exchange and in a step."""
    with TraceWriter(folder / "trace.jsonl") as writer:
        at = 0.0
        for n in range(80):
            busy, exchange = 0.1 + (outage_s if n == 74 else 0.0), 0.01 + (outage_s if n == 75 else 0.0)
            for rank in range(2):
                step = Span(
                    at=at + busy, rank=rank, activity="computing", seconds=busy, steps=1, samples=8, exchanges=1
                )
                writer.append(step)
                writer.append(Span(at=at + busy + exchange, rank=rank, activity="communicating", seconds=exchange))
            at += busy + exchange
    return folder


def forecast(run: Path) -> dict[str, float]:
    asked: list[Sequence[Measured]] = []

    def forecaster(measured: Sequence[Measured]) -> list[Forecast]:
        asked.append(measured)
        return forecasts_of(measured, BSP)

    reader = Reader(run, forecaster)
    assert reader.read()
    reader._foretell()
    assert reader._asked is not None
    reader._asked.join(60)
    assert asked
    document = reader.picture(PageQuery())
    assert document["withheld"] == ""
    return {row["scheme"]: row["rate"] for row in document["forecast"]}


def test_an_outage_among_the_latest_steps_does_not_change_the_forecast(tmp_path: Path) -> None:
    (tmp_path / "well").mkdir()
    (tmp_path / "ill").mkdir()
    well, ill = forecast(run_with_outage(tmp_path / "well", 0.0)), forecast(run_with_outage(tmp_path / "ill", 5.0))
    assert well["bsp"] == pytest.approx(2 * 8 / 0.11, rel=0.1)
    assert ill == pytest.approx(well, rel=0.1)


@pytest.mark.parametrize(("rate", "is_withheld"), [(100.0, False), (120.0, False), (80.0, True), (1000.0, True)])
def test_a_forecast_that_misses_the_run_itself_by_more_than_a_quarter_is_withheld(
    rate: float, is_withheld: bool, tmp_path: Path
) -> None:
    rows = [
        Forecast(scheme="bsp", rate=101.0, kind="fresh", is_own=True),
        Forecast(scheme="asp", rate=300, kind="late"),
    ]
    assert bool(withheld_because(rows, rate)) == is_withheld
    reader = Reader(tmp_path, lambda _: rows)
    reader._ask(reader._state, [], question(reader._state), 0.0, rate)
    document = reader.picture(PageQuery())
    assert [row["scheme"] for row in document["forecast"]] == (["bsp"] if is_withheld else ["bsp", "asp"])
    assert ("101 samples/s" in document["withheld"]) == is_withheld


def test_where_the_workers_hardly_wait_no_scheme_is_said_to_give_much_more() -> None:
    rows = [
        Forecast(scheme="bsp", rate=100.0, kind="fresh", is_own=True),
        Forecast(scheme="asp", rate=300, kind="late"),
    ]
    assert withheld_because(rows, 100.0) == ""
    assert "300 samples/s" in withheld_because(rows, 100.0, calm=True)
    assert withheld_because([rows[0], Forecast(scheme="asp", rate=140, kind="late")], 100.0, calm=True) == ""
