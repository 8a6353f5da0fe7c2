"""Sessions of Theano-MPI: its file is read and not executed, and becomes a command of `paceline launch`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from paceline.compat.theanompi.session import TheanoMpiSession, hosts_and_devices, launched, read_session
from paceline.core.errors import ConfigError

FILE = """# launch_session.cfg of two nodes
RULE=BSP
MODELFILE=theanompi.models.alex_net   # in the package
MODELCLASS='AlexNet'
DEVICES=("node0:cuda0,cuda1"
         "node1:cuda0")
export BSP_SYNC_TYPE=cdd
BSP_EXCH_STRATEGY="ar"
"""


def session(**given: Any) -> TheanoMpiSession:
    values = {"rule": "BSP", "devices": ("cpu", "cpu"), "modelfile": "m", "modelclass": "C", **given}
    return TheanoMpiSession(**values)


def test_a_session_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "s.cfg").write_text(FILE)
    assert read_session(tmp_path / "s.cfg") == {
        "rule": "BSP",
        "modelfile": "theanompi.models.alex_net",
        "modelclass": "AlexNet",
        "devices": ("node0:cuda0,cuda1", "node1:cuda0"),
        "sync_type": "cdd",
        "exch_strategy": "ar",
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("RULE=$(hostname)", "is a command of the shell"),
        ("rm -rf somewhere", "line 1: 'rm -rf somewhere' is no assignment; the file is read, not executed"),
        ("RULES=BSP", "RULES is no setting of a session; did you mean 'RULE'"),
        ("RULE='BSP", "No closing quotation"),
    ],
)
def test_what_is_no_value_is_refused_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "s.cfg").write_text(text)
    with pytest.raises(ConfigError, match=words.replace("(", r"\(")):
        read_session(tmp_path / "s.cfg")


def test_devices_have_hosts_and_the_names_of_torch() -> None:
    assert hosts_and_devices(["cuda0", "cpu"]) == [("", "cuda:0"), ("", "cpu")]
    assert hosts_and_devices(["a:cuda0,cuda1"]) == [("a", "cuda:0"), ("a", "cuda:1")]
    for wrong in (["tpu0"], []):
        with pytest.raises(ConfigError, match="device"):
            hosts_and_devices(wrong)


def test_bsp_averages_among_workers_without_servers() -> None:
    words, lines = launched(session(exch_strategy="asa16", settings={"epochs": "2"}))
    before, _, after = " ".join(words).partition(" -m paceline.compat.theanompi.worker ")
    assert before.startswith("-n 2 -s 0 --allreduce pairwise --device cpu,cpu ")
    assert after == "BSP m C --scheme=bsp --codec=fp16 --sync_type=cdd epochs=2"
    assert lines == ["BSP: cdd is --scheme bsp; asa16 is --allreduce pairwise --codec fp16"]


def test_avg_averages_weights_after_every_step() -> None:
    words, _ = launched(session(sync_type="avg"))
    assert words[-4:-2] == ["--scheme=localsgd", "--codec=none"]
    assert words[-1] == '--parameters={"tau": 1}'


def test_the_first_device_of_easgd_is_the_servers() -> None:
    words, lines = launched(session(rule="EASGD", devices=("cuda0", "cuda1", "cuda2")))
    assert words[:6] == ["-n", "2", "-s", "1", "--device", "cuda:1,cuda:2"]
    assert words[-2:] == ["--scheme=easgd", '--parameters={"alpha": 0.5, "tau": 10}']
    assert "cuda:0 stays idle" in lines[0]
    with pytest.raises(ConfigError, match="name two or more"):
        launched(session(rule="EASGD", devices=("cuda0",)))


def test_gosgd_has_theano_mpis_own_probability() -> None:
    assert launched(session(rule="GOSGD"))[0][-2:] == ["--scheme=gosgd", '--parameters={"p": 0.01}']
    with pytest.raises(ConfigError, match="RULE=ASGD: must be one of BSP, EASGD, GOSGD"):
        launched(session(rule="ASGD"))


def test_devices_of_several_hosts_become_a_hosts_file(tmp_path: Path) -> None:
    words, _ = launched(session(devices=("node0:cuda0,cuda1", "node1:cuda0")), tmp_path)
    assert words[:2] == ["-n", "3"]
    assert words[words.index("-H") + 1] == str(tmp_path / "theanompi-hosts")
    assert (tmp_path / "theanompi-hosts").read_text() == "node0 slots=2 gpus=0,1\nnode1 slots=1 gpus=0\n"
