"""A device that a host lacks is refused in one line, before anybody trains."""

from __future__ import annotations

import re
from typing import Any

import pytest

from paceline.config import Config, build
from paceline.core.coordination.party import Party
from paceline.core.errors import ConfigError
from paceline.live.net.inprocess_transport import Hub
from paceline.runtime.process_main import take_part
from paceline.runtime.spec import devices
from paceline.runtime.spec.devices import check_device, check_devices, depend_on_gpus, gpus_of_ranks
from paceline.runtime.spec.process_spec import ProcessSpec


@pytest.fixture(autouse=True)
def _with_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "torch_has_cuda", lambda: True)


def config_for(device: str = "auto", precision: str = "fp32") -> Config:
    ranks = ",".join(str(of.count("+") + 1) for of in device.split(","))
    sections: dict[str, Any] = {
        "run": {"script": "x.py"},
        "stop": {"until_stopped": True},
        "cluster": {"workers": 2, "device": device, "ranks": ranks},
        "model": {"precision": precision},
    }
    return build(sections)


def check(config: Config, gpus: int) -> str:
    """What is wrong with it on a host with so many GPUs, for its two workers."""
    try:
        check_devices(config, [(0, 0), (1, 1)], gpus)
    except ConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("device", "gpus", "says"),
    [
        ("auto", 0, ""),
        ("cpu", 0, ""),
        ("cuda:0,cpu", 1, ""),
        ("cuda:1,cuda:0", 2, ""),
        ("cuda", 1, ""),
        ("cuda", 0, "--device cuda: torch finds no CUDA device here; give --device cpu"),
        ("cpu,cuda:0", 0, "--device cuda:0: torch finds no CUDA device here; give --device cpu"),
        ("cuda:1", 1, "--device cuda:1: torch finds one CUDA device, cuda:0, here; give --device auto"),
        ("cuda:0+1,cpu", 2, ""),
        ("cuda:0+2,cpu", 2, "--device cuda:0+2: torch finds cuda:0 to cuda:1 here; give --device auto"),
        ("cuda:0,cuda:7", 2, "--device cuda:7: torch finds cuda:0 to cuda:1 here; give --device auto"),
    ],
)
def test_a_device_is_refused_where_the_host_lacks_it(device: str, gpus: int, says: str) -> None:
    assert check(config_for(device), gpus) == says


@pytest.mark.parametrize(
    ("device", "first", "visible", "expected"),
    [
        ("cpu", 0, None, None),
        ("auto", 0, None, "0,1"),
        ("auto", 2, None, "2,3"),
        ("auto", 2, "4,5,6,7", "6,7"),
        ("auto", 4, "4,5", ""),
        ("cuda:1+3", 0, None, "1,3"),
        ("cuda:1+3", 0, "a,b,c,d", "b,d"),
        ("cuda", 0, None, "0,1"),
    ],
)
def test_the_processes_of_a_worker_see_its_gpus_alone(
    device: str, first: int, visible: str | None, expected: str | None
) -> None:
    assert gpus_of_ranks(device, first, 2, visible) == expected


def test_half_precision_is_refused_where_a_worker_would_be_on_the_cpu() -> None:
    assert check(config_for(precision="fp16"), 2) == ""
    assert check(config_for(precision="fp16"), 1) == (
        "--precision fp16: worker 1 would be on the CPU (torch finds one CUDA device, cuda:0, here), and fp16 needs a "
        "GPU for every worker; give --precision bf16 or fp32"
    )


def test_a_host_answers_for_its_own_workers_alone() -> None:
    config = config_for("cpu,cuda:0")
    check_devices(config, [(0, 0)], 0)
    assert not depend_on_gpus(config, [(0, 0)])
    with pytest.raises(ConfigError, match="--device cuda:0"):
        check_devices(config, [(1, 0)], 0)


def test_without_cuda_in_torch_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "torch_has_cuda", lambda: False)
    assert check(config_for("cuda:0"), 0) == "--device cuda:0: torch was built without CUDA here; give --device cpu"


def test_a_party_that_nobody_asked_before_says_it_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    spec = ProcessSpec(party="worker 0", workers=1, servers=0, coordinator="", token="t", device="cuda:99")
    why = take_part(spec, Hub().transport(Party.parse(spec.party))).why
    assert why.startswith("worker 0: --device cuda:99: torch finds ")
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("device", "count", "says"),
    [
        ("xpu:1", 2, ""),
        ("mps", 1, ""),
        ("xpu:2", 2, "--device xpu:2: torch finds xpu:0 to xpu:1 here; give --device auto"),
        ("mps", 0, "--device mps: torch finds no MPS device here; give --device cpu"),
    ],
)
def test_other_accelerators_are_taken_by_name(device: str, count: int, says: str) -> None:
    config_for(f"{device},cpu")
    if not says:
        check_device(device, count)
        return
    with pytest.raises(ConfigError, match=f"^{re.escape(says)}$"):
        check_device(device, count)
