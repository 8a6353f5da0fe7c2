"""One worker of a rule, alone in its process: epochs, steps, warm-up, and a validation that ends the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paceline.compat.theanompi import worker
from paceline.compat.theanompi.torch_model import TorchModel

WORDS = ["--scheme=localsgd", '--parameters={"tau": 1}', "data=digits", "batch_size=128", "epochs=2"]
made: list[Any] = []


class Counting(TorchModel):
    """Counts what it is asked for. With `steps=own` it makes its steps itself."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        self.calls: list[str] = []
        made.append(self)

    def train_iter(self, count: int, recorder: Any) -> None:
        super().train_iter(count, recorder)
        self.calls.append("train")
        if self.config.get("steps") == "own":
            self.optimizer.step()
            self.optimizer.zero_grad()

    def val_iter(self, count: int, recorder: Any) -> Any:
        self.calls.append("val")
        super().val_iter(count, recorder)
        return self.config.get("val")

    def adjust_hyperp(self, epoch: int) -> None:
        self.calls.append(f"adjust {epoch}")

    def cleanup(self) -> None:
        self.calls.append("cleanup")


@pytest.fixture(autouse=True)
def _alone(alone: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made.clear()


def run(rule: str, *words: str) -> Any:
    assert worker.main([rule, __name__, "Counting", *WORDS, *words]) == 0
    return made[0]


def test_epochs_are_those_of_theano_mpi_whoever_makes_the_steps() -> None:
    calls = run("BSP").calls
    train, val = ["train"] * 11, ["val"] * 3
    assert calls == [*train, *val, "adjust 0", *train, *val, "adjust 1", "cleanup"]
    made.clear()
    assert run("BSP", "steps=own").calls == calls


def test_under_the_other_rules_epochs_are_counted_by_what_all_have_trained() -> None:
    calls = run("GOSGD", "--scheme=gosgd", '--parameters={"p": 0.01}').calls
    assert [call for call in calls if call.startswith("adjust")] == ["adjust 0", "adjust 1"]
    assert calls.count("train") >= 22  # what has been trained is told four times a second
    assert calls[-1] == "cleanup"


def test_a_validation_that_says_stop_ends_the_run() -> None:
    calls = run("BSP", "val=stop").calls
    assert calls.count("train") == 11
    assert calls[-1] == "cleanup"


def test_what_is_not_of_a_model_is_refused_in_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Exception, match="MODELFILE json:JSONDecoder"):
        worker.main(["BSP", "json", "JSONDecoder", *WORDS])
    assert json
