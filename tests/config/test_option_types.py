from __future__ import annotations

import inspect
import typing

import pytest

from paceline.config import settings
from paceline.config.option_types import SchemeParameters, TrainOptions
from paceline.launch.join import join
from paceline.launch.local.train import train
from scripts import option_types

REPAIR = "run `python -m scripts.option_types`, and commit paceline/config/option_types.py"


def test_they_are_those_of_the_sections_and_schemes() -> None:
    assert option_types.FILE.read_text(encoding="utf-8") == option_types.option_types(), REPAIR


def test_each_option_is_an_argument_of_train() -> None:
    hints = typing.get_type_hints(TrainOptions)
    assert set(hints) == {setting.keyword for setting in settings()}
    assert (hints["workers"], hints["lr"], hints["ssp_staleness"]) == (int, float, int)


@pytest.mark.parametrize(("function", "taken"), [(train, TrainOptions), (join, SchemeParameters)])
def test_none_has_the_name_of_another_argument(function: typing.Any, taken: typing.Any) -> None:
    own = {name for name, one in inspect.signature(function).parameters.items() if one.kind is not one.VAR_KEYWORD}
    assert own & set(typing.get_type_hints(taken)) == set()
    assert any(one.kind is one.VAR_KEYWORD for one in inspect.signature(function).parameters.values())
