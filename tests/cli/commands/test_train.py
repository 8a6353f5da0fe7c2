"""`paceline train` as one of several processes: what it imports is what its own command names."""

from __future__ import annotations

import pytest

from paceline.cli.commands.train import check_same_code, run_settings
from paceline.config import build
from paceline.core.errors import ConfigError
from paceline.launch.external import follower, rendezvous
from paceline.launch.external.follower import Assignment
from paceline.runtime.spec.process_spec import ProcessSpec


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


@pytest.mark.parametrize(("role", "trained_on"), [("worker", "cuda:1"), ("server", "cpu")])
def test_a_worker_that_another_system_starts_is_on_the_device_of_its_own_command(
    role: str, trained_on: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = build({"run": {"scheme": "esync"}})
    spec = ProcessSpec(party=f"{role}:0", workers=2, servers=1, coordinator="", token="", device="cpu", config=config)
    taken: list[ProcessSpec] = []

    def take_part(place: Assignment) -> int:
        taken.append(place.spec)
        return 0

    monkeypatch.setattr(follower, "register", lambda external, leader, prepare_s: Assignment(spec, None, None))  # type: ignore[arg-type]
    monkeypatch.setattr(follower, "take_part", take_part)
    monkeypatch.setattr(rendezvous, "with_job", lambda external: external)
    for name, value in (("ROLE", role), ("PS_ROOT_URI", "127.0.0.1"), ("PS_ROOT_PORT", "9091")):
        monkeypatch.setenv(f"DMLC_{name}", value)
    monkeypatch.setenv("DMLC_NUM_WORKER", "2")
    monkeypatch.setenv("DMLC_NUM_SERVER", "1")
    assert run_settings({"run": {"scheme": "esync"}, "cluster": {"device": "cuda:1"}}) == (0, "")
    assert taken[0].device == trained_on
