"""What a coordinator is made of is kept in a recording and read back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline.core.errors import ConfigError
from paceline.runtime.spec.coordinator_setup import CoordinatorSetup
from tests.runtime.one_process import config_for


def setup(out: Path) -> CoordinatorSetup:
    config = config_for(out, steps=7, scheme="ssp", ssp={"staleness": 2})
    return CoordinatorSetup(config=config, train_samples=100, evaluator=True, trains=True, done=((0, 3, 9),), behind=4)


def test_a_header_is_read_as_it_was_written_but_for_the_folder(tmp_path: Path) -> None:
    header = json.loads(json.dumps({"format": 1, **setup(tmp_path).header()}))
    again = CoordinatorSetup.of(header)
    assert str(tmp_path) not in json.dumps(header)
    assert (again.header(), again.done) == (setup(tmp_path).header(), ((0, 3, 9),))
    assert again.config.scheme().parameters()["staleness"] == 2


@pytest.mark.parametrize(
    "change", [{"format": 2}, {"party": "worker 0"}, {"done": 3}, {"config": {"nonsense": {}}}, {"behind": None}]
)
def test_what_cannot_be_read_is_refused_in_a_line(tmp_path: Path, change: dict[str, object]) -> None:
    header = {"format": 1, **setup(tmp_path).header(), **change}
    with pytest.raises(ConfigError):
        CoordinatorSetup.of(header)
