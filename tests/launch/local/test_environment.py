"""The contract with a training script: what `paceline launch` sets is what `paceline.join` reads."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.config import CARRIERS, Config, build
from paceline.config.sections import ClusterSettings
from paceline.core.errors import ConfigError
from paceline.launch.local.environment import PREFIX, environment_of, scheme_from, scheme_variables, spec_from
from paceline.runtime.spec.process_spec import ProcessSpec

TOKEN = "a token"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    return environment_of(
        ProcessSpec(party="worker 2", workers=4, servers=1, coordinator="127.0.0.1:5", token=TOKEN), token
    )


@given(
    rank=st.integers(0, 99),
    others=st.integers(0, 100),
    servers=st.integers(0, 9),
    step_seconds=st.floats(0, 10),
    batch_limit=st.integers(0, 99),
    part_size=st.integers(0, 99),
    transport=st.sampled_from(["auto", "shm", "tcp"]),
    allreduce=st.sampled_from(CARRIERS),
    device=st.sampled_from(["auto", "cpu", "cuda:3"]),
)
def test_a_seat_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory,
    rank: int,
    others: int,
    servers: int,
    step_seconds: float,
    batch_limit: int,
    part_size: int,
    transport: str,
    allreduce: str,
    device: str,
) -> None:
    token = tmp_path_factory.getbasetemp() / "token"
    token.write_text(TOKEN)
    spec = ProcessSpec(
        party=f"worker {rank}",
        workers=rank + 1 + others,
        servers=servers,
        coordinator="[::1]:7",
        token=TOKEN,
        device=device,
        step_seconds=step_seconds,
        batch_limit=batch_limit,
        part_size=part_size,
        config=Config(cluster=ClusterSettings(transport=transport, allreduce=allreduce)),
    )
    assert spec_from(environment_of(spec, token)) == spec


def test_every_variable_has_the_prefix_and_none_holds_the_token(environment: dict[str, str]) -> None:
    assert all(name.startswith(PREFIX) for name in environment)
    assert TOKEN not in environment.values()


def test_every_variable_is_documented(environment: dict[str, str]) -> None:
    import paceline.launch.local.environment as module

    assert module.__doc__ is not None
    assert [name for name in environment if name not in module.__doc__] == []


def test_the_bound_of_every_wait_reaches_a_script(environment: dict[str, str], tmp_path: Path) -> None:
    spec = spec_from(environment)
    assert spec is not None
    longer = dataclasses.replace(spec, config=Config(cluster=ClusterSettings(timeout=7.5)))
    assert longer.timeout_s == 7.5
    assert spec_from(environment_of(longer, tmp_path / "token")) == longer


def test_without_a_coordinator_a_process_is_alone() -> None:
    assert spec_from({}) is None
    assert spec_from({PREFIX + "RANK": "3"}) is None


@pytest.mark.parametrize("name", ["RANK", "WORKERS", "TOKEN_FILE"])
def test_what_is_missing_is_named(environment: dict[str, str], name: str) -> None:
    del environment[PREFIX + name]
    with pytest.raises(ConfigError, match=f"{PREFIX}{name} must be too; see `paceline launch`"):
        spec_from(environment)


@pytest.mark.parametrize(("name", "value"), [("RANK", "two"), ("WORKERS", ""), ("STEP_SECONDS", "fast")])
def test_what_cannot_be_read_is_told_in_one_line(environment: dict[str, str], name: str, value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        spec_from({**environment, PREFIX + name: value})
    assert PREFIX in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_token_file_that_is_missing_is_named(environment: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"TOKEN_FILE: .*nowhere: No such file"):
        spec_from({**environment, PREFIX + "TOKEN_FILE": str(tmp_path / "nowhere")})


def test_a_token_file_that_holds_no_token_is_refused_before_it_is_read(
    environment: dict[str, str], tmp_path: Path
) -> None:
    fifo, long, link = tmp_path / "fifo", tmp_path / "long", tmp_path / "link"
    os.mkfifo(fifo)
    long.write_bytes(b"a" * 5000)
    for path, why in ((fifo, "not a regular file"), (long, "more than 4096 bytes")):
        with pytest.raises(ConfigError, match=f"TOKEN_FILE: .*{path.name}: {why}"):
            spec_from({**environment, PREFIX + "TOKEN_FILE": str(path)})
    link.symlink_to(environment[PREFIX + "TOKEN_FILE"])  # as a Secret of Kubernetes is
    assert spec_from({**environment, PREFIX + "TOKEN_FILE": str(link)}) == spec_from(environment)


def test_a_rank_outside_the_run_is_refused(environment: dict[str, str]) -> None:
    for rank in ("4", "-1"):
        with pytest.raises(ConfigError, match="RANK"):
            spec_from({**environment, PREFIX + "RANK": rank})


# ---- the scheme of the command -------------------------------------------------------------------------------------
def test_the_scheme_of_the_command_wins_and_is_told_by_rank_0_alone(capsys: pytest.CaptureFixture[str]) -> None:
    told = scheme_variables(build({"run": {"scheme": "ssp"}, "ssp": {"staleness": 5}}))
    assert scheme_from({**told, f"{PREFIX}RANK": "1"}, "asp", {"weighting": "inverse"}) == ("ssp", {"staleness": 5})
    assert capsys.readouterr().out == ""
    scheme_from({**told, f"{PREFIX}RANK": "0"}, "asp", {})
    line = "paceline: the command says --scheme ssp, so scheme='asp' of join is not used\n"
    assert capsys.readouterr().out == line


def test_parameters_of_the_script_hold_for_its_own_scheme_where_the_command_says_nothing() -> None:
    told = scheme_variables(build({"run": {"scheme": "ssp"}, "ssp": {"staleness": 5}}))
    own = {"staleness": 1, "weighting": "inverse"}
    assert scheme_from(told, "ssp", own) == ("ssp", {"staleness": 5, "weighting": "inverse"})
    assert scheme_from({}, "ssp", own) == ("ssp", own)


@pytest.mark.parametrize("text", ["{", "[1]", "3"])
def test_parameters_that_are_no_object_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="PACELINE_SCHEME_PARAMETERS: must be a JSON object"):
        scheme_from({f"{PREFIX}SCHEME": "ssp", f"{PREFIX}SCHEME_PARAMETERS": text}, "asp", {})
