"""Names in the registry, and the nearest of a wrong one."""

import pkgutil

import pytest

import paceline.schemes
from paceline.core.errors import ConfigError
from paceline.core.registry import nearest
from paceline.core.scheme import lookup, make, names


def test_the_registry_holds_every_scheme_of_the_catalogue() -> None:
    assert names() == sorted(lookup(name).name for name in names())
    files = {file.name for file in pkgutil.iter_modules(paceline.schemes.__path__)}
    assert files == {lookup(name).__module__.rpartition(".")[2] for name in names()}


def test_an_unknown_scheme_is_answered_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown scheme 'esinc'; did you mean 'esync'"):
        make("esinc", {})
    with pytest.raises(ConfigError, match="there are: adpsgd, asp"):
        make("quux", {})


def test_nearest_is_silent_when_there_is_nothing_to_name() -> None:
    assert nearest("x", []) == ""
