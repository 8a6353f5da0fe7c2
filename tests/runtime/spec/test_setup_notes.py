"""What a user reads before training; a batch that is larger than the data is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.cli.main import main
from paceline.config import Config, build
from paceline.core.errors import ConfigError
from paceline.core.scheme import EXCHANGES_MIN, make, names
from paceline.runtime.spec.setup_notes import batch_size_note, check_batch_size, setup_notes, short_run_note
from paceline.runtime.worker.train_loop import recipe_of

SAMPLES = 1437  # digits
SHORTENED = sorted(name for name in names() if make(name, {}).for_run(16, ()) != make(name, {}))


def config(scheme: str, workers: int = 16, epochs: float = 6.0, **more: Any) -> Config:
    return build({"run": {"scheme": scheme}, "cluster": {"workers": workers}, "stop": {"epochs": epochs}, **more})


def test_schemes_with_many_local_steps_shorten_their_rounds_for_short_runs() -> None:
    assert {"asyncdiloco", "decoupled", "diloco", "halos", "noloco", "sparseloco", "tiers"} <= {*SHORTENED}


@pytest.mark.parametrize("scheme", SHORTENED)
def test_a_line_says_so_before_training_and_all_processes_have_the_same(scheme: str) -> None:
    note = short_run_note(config(scheme), SAMPLES)
    assert note.startswith(f"{scheme}: ")
    assert "17 steps of a worker are a short run for it, which may end below bsp" in note
    assert note in setup_notes(config(scheme), recipe_of(config(scheme), SAMPLES), SAMPLES)
    recipe = recipe_of(config(scheme), SAMPLES)
    assert recipe.make_scheme() == config(scheme).scheme_of(SAMPLES)
    recipe.make_scheme().check(16, 1)


@pytest.mark.parametrize("scheme", ["adpsgd", "gosgd"])
def test_gossip_has_a_line_for_a_run_in_which_models_stay_apart(scheme: str) -> None:
    note = short_run_note(config(scheme), SAMPLES)
    assert note.startswith(f"{scheme}: 17 steps of a worker are a short run for it, which may end below bsp: below 50 ")
    assert note in setup_notes(config(scheme), recipe_of(config(scheme), SAMPLES), SAMPLES)
    assert short_run_note(config(scheme, workers=4), SAMPLES) == ""
    assert short_run_note(config(scheme, epochs=18.0), SAMPLES) == ""


def test_lbbsp_has_one_where_bsp_makes_more_updates_as_each_epoch_ends_with_a_small_one() -> None:
    assert "9 steps of a worker are a short run for it" in short_run_note(config("lbbsp", workers=32), SAMPLES)
    assert short_run_note(config("lbbsp"), SAMPLES) == ""


@pytest.mark.parametrize("scheme", SHORTENED)
def test_a_long_run_has_the_rounds_of_the_paper(scheme: str) -> None:
    assert short_run_note(config(scheme, epochs=2000), SAMPLES) == ""
    assert recipe_of(config(scheme, epochs=2000), SAMPLES).make_scheme() == make(scheme, {}).completed({}, SAMPLES)


def test_a_run_has_ten_exchanges_where_it_has_as_many_steps() -> None:
    for steps in (10, 17, 45, 67, 150):
        own: Any = make("diloco", {}).for_run(steps, ())
        assert steps // own.h >= EXCHANGES_MIN or own.h == 1


@pytest.mark.parametrize(
    ("scheme", "given"),
    [("diloco", {"h": 20}), ("sparseloco", {"h": 20, "density": 0.01}), ("tiers", {"outer": "asyncdiloco(h=20)"})],
)
def test_what_the_user_gives_stays(scheme: str, given: dict[str, Any]) -> None:
    own = recipe_of(config(scheme, **{scheme: given}), SAMPLES)
    assert {key: own.parameters[key] for key in given} == given
    assert short_run_note(config(scheme, **{scheme: given}), SAMPLES) == ""


def test_fragments_and_an_overlap_that_are_given_keep_their_room() -> None:
    own: Any = make("diloco", {"fragments": 4, "delay": 1}).for_run(16, {"fragments", "delay"})
    assert own.h == 8
    own.check(4, 1)
    own = make("decoupled", {"tau": 3}).for_run(16, {"tau"})
    assert own.tau == 3
    own.check(4, 1)


def test_error_feedback_sends_each_number_some_times_in_a_short_run() -> None:
    own: Any = make("sparseloco", {}).for_run(20, ())
    assert own.density == pytest.approx(2 * own.h / 20)
    assert (
        recipe_of(config("sparseloco"), SAMPLES).codecs.up
        == recipe_of(config("sparseloco"), SAMPLES).make_scheme().codec
    )


def test_a_run_whose_length_is_not_known_keeps_its_rounds() -> None:
    timed = build({"run": {"scheme": "diloco"}, "stop": {"epochs": 0.0, "seconds": 5.0}})
    assert short_run_note(timed, SAMPLES) == ""


def test_steps_of_each_worker_are_a_length_too() -> None:
    by_steps = build({"run": {"scheme": "diloco"}, "stop": {"epochs": 0.0, "steps": 30}})
    assert recipe_of(by_steps, SAMPLES).parameters["h"] == 3


Capture = pytest.CaptureFixture[str]


def batches(batch_size: int, workers: int = 4, partition: str = "uniform"):  # type: ignore[no-untyped-def]
    return build({"data": {"batch_size": batch_size, "partition": partition}, "cluster": {"workers": workers}})


def test_a_batch_larger_than_the_data_is_refused() -> None:
    check_batch_size(batches(1437), 1437)
    with pytest.raises(ConfigError, match="--batch-size 1438: digits has 1437 samples to train on"):
        check_batch_size(batches(1438), 1437)


def test_a_batch_larger_than_a_share_is_said_where_shares_are_equal() -> None:
    assert batch_size_note(batches(25), 100) == ""
    assert "each of 4 workers has 25 samples" in batch_size_note(batches(26), 100)
    assert "has 26 samples at most" in batch_size_note(batches(50), 101)
    assert batch_size_note(batches(90, partition="dirichlet:0.1"), 100) == ""  # the worker's log says what it has


def test_it_is_said_in_a_line_and_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["--scheme", "bsp", "--workers", "4", "--step-ms", "5", "--epochs", "2"]
    assert main(["simulate", *small, "--batch-size", "5000"]) == 2
    assert capsys.readouterr().err.startswith("paceline: --batch-size 5000: digits has ")
    assert not list(tmp_path.glob("runs/*"))
    assert main(["simulate", *small, "--batch-size", "400", "--out", "run"]) == 0
    assert "--batch-size 400 is more than a worker's share" in capsys.readouterr().err.splitlines()[0]
    assert main(["simulate", *small, "--batch-size", "5000", "--timing-only", "--out", "timing"]) == 0
    assert "curve.png" not in capsys.readouterr().out
    assert not (tmp_path / "timing" / "curve.png").exists()
