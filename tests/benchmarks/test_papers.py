"""The scripts that reproduce papers: all can be imported, and the cheapest run, in a tiny configuration."""

from __future__ import annotations

import importlib
import math
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "papers"
PAGES = FOLDER.parents[1] / "docs" / "papers"
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py"))


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Imports a script by name, as if it had been started: its neighbours are found."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module
    for name in SCRIPTS:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", [script for script in SCRIPTS if script != "common"])
def test_every_script_says_how_to_run_it_and_its_page_opens_with_the_claim(load: Any, name: str) -> None:
    script: ModuleType = load(name)
    assert callable(script.main)
    assert f"python benchmarks/papers/{name}.py" in (script.__doc__ or "")
    claim = load("common").claim_of(script.__doc__ or "")
    assert claim.startswith("Claim")
    assert (PAGES / f"{name}.md").read_text().split("\n\n")[2] == claim


def test_lb_bsp_halves_a_round_where_the_slowest_is_four_times_slower(load: Any, tmp_path: Path) -> None:
    options = ["--rounds", "30", "--data", "digits", "--target", "0.3", "--lrs", "0.3", "--seeds", "1"]
    assert load("lbbsp").main([*options, "--pages", str(tmp_path)]) == 0
    page = (tmp_path / "lbbsp.md").read_text()
    (ratio,) = re.findall(r"\| 1, 1, 2, 4 times \|.*?([\d.]+) times \|", page)
    assert 2 < float(ratio) <= 2.75
    assert (tmp_path / "lbbsp.png").read_bytes().startswith(b"\x89PNG")
    assert "![" in page


def test_the_exchanges_of_theano_mpi_last_as_long_as_its_authors_measured(load: Any, tmp_path: Path) -> None:
    assert load("theanompi").main(["--pages", str(tmp_path)]) == 0
    page = (tmp_path / "theanompi.md").read_text()
    cells = re.findall(r"\| (?:AlexNet|VGG16, 32|ResNet-50), .*? \| ([\d.]+) \(([\d.]+)\)", page)
    assert len(cells) == 3
    assert all(float(ours) == pytest.approx(float(paper), rel=0.2) for ours, paper in cells)
    assert page.count("| reproduced |") == 4
    assert page.count("**NOT reproduced**") == 1


def test_late_gradients_are_weighted_and_the_page_has_every_rate(load: Any, tmp_path: Path) -> None:
    options = ["--counts", "4", "--epochs", "1", "--lrs", "0.1,0.3", "--seeds", "1"]
    assert load("weighting").main([*options, "--pages", str(tmp_path)]) == 0
    rows = re.findall(r"\| 4 \| [\d.]+ \| (\S+) \| ([\d.]+) \| ([\d.]+) \|", (tmp_path / "weighting.md").read_text())
    assert [name for name, *_ in rows] == ["none", "1/Y", "1/sqrt(Y)"]
    assert len({tuple(errors) for _, *errors in rows}) > 1  # the weighting makes a difference


def test_the_best_rate_is_that_of_the_least_median_and_a_target_missed_once_is_missed(load: Any) -> None:
    common = load("common")
    scores = {0.1: [3.0, math.inf], 0.2: [9.0, 5.0, 12.0], 0.3: [10.0, 1.0, 10.0]}
    found = common.Sweep(trials=scores, score=lambda trial: trial)
    assert (found.best_lr, found.best) == (0.2, 9.0)
    assert common.shown(found.middle(0.1)) == "missed"


@pytest.mark.parametrize(
    ("seconds", "next_rate"),
    [
        ({0.1: 5.0, 0.3: 4.0, 0.9: 6.0}, None),  # the best lies inside
        ({0.1: 5.0, 0.3: 4.0}, 0.9),
        ({0.1: 3.0, 0.3: 4.0}, 0.03),
        ({0.1: math.inf, 0.3: math.inf}, 0.03),  # nothing is reached: smaller steps may help
        ({0.1: 3.0}, None),  # one rate is no grid
    ],
)
def test_a_grid_is_widened_where_its_best_rate_is_at_an_edge(
    load: Any, seconds: dict[float, float], next_rate: float | None
) -> None:
    common = load("common")
    found = common.Sweep(trials={lr: [value] for lr, value in seconds.items()}, score=lambda trial: trial)
    assert common.beyond(found) == next_rate
