"""`paceline train` as one of several processes: what it imports is what its own command names."""

from __future__ import annotations

import pytest

from paceline.cli.commands.train import check_same_code
from paceline.config import build
from paceline.core.errors import ConfigError


def test_a_process_imports_nothing_that_its_own_command_does_not_name() -> None:
    own = build({"model": {"name": "mine:Net"}})
    check_same_code(build({"model": {"name": "mine:Net"}}), own)
    check_same_code(build({"model": {"name": "lenet"}}), own)  # nothing is imported for it
    for section, words in (
        ("model", "--model mine:Net: rank 0 says --model evil:Net"),
        ("data", "--data digits: rank"),
    ):
        with pytest.raises(ConfigError, match=words):
            check_same_code(build({section: {"name": "evil:Net"}}), own)
