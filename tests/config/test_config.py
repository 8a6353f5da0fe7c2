"""The configuration: what comes in comes out again, and whatever is wrong is told in one line that helps."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline import config as configuration
from paceline.config import Config, build, scheme_settings, to_dict
from paceline.core.errors import ConfigError
from paceline.core.scheme import names
from tests.config.settings import _value, told

Values = dict[str, dict[str, Any]]


SETTINGS = list(configuration.settings())


# ---- there and back -----------------------------------------------------------------------------------------


def test_the_defaults_are_a_configuration() -> None:
    assert build({}) == Config()


def test_parameters_of_other_schemes_are_kept_too() -> None:
    config = build({"run": {"scheme": "bsp"}, "ssp": {"staleness": 7}, "gsp": {"ratio": 2}})
    assert config.parameters == {"ssp": {"staleness": 7}, "gsp": {"ratio": 2.0}}
    assert to_dict(build(to_dict(config))) == to_dict(config)


@pytest.mark.parametrize("scheme", names())
def test_every_parameter_of_every_scheme_can_be_set(scheme: str) -> None:
    from paceline.core.scheme import lookup

    fields = {field.name for field in dataclasses.fields(lookup(scheme))}
    assert {setting.key for setting in scheme_settings(scheme)} == fields
    for setting in scheme_settings(scheme):
        config = build({"run": {"scheme": scheme}, scheme: {setting.key: setting.default}})
        assert getattr(config.scheme(), setting.key) == setting.default


_known = st.sampled_from([(setting.section, setting.key) for setting in SETTINGS])


_place = st.one_of(_known, st.tuples(st.text(max_size=8), st.text(max_size=8)))


@given(st.dictionaries(_place, _value, max_size=4))
@settings(max_examples=300)
def test_junk_is_refused_as_a_wrong_setting_and_nothing_else(junk: dict[tuple[str, str], Any]) -> None:
    values: Values = {}
    for (section, key), value in junk.items():
        values.setdefault(section, {})[key] = value
    try:
        once = to_dict(build(values))
    except ConfigError as wrong:
        told_well = told(wrong)
    else:
        told_well = to_dict(build(once)) == once
    assert told_well
