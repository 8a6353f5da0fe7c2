"""`paceline.join` where there is nothing to join any more."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import paceline
from paceline.core.coordination import control_messages as control
from paceline.core.coordination import party
from paceline.core.errors import ConfigError
from paceline.launch import join as module
from paceline.live.net.inprocess_transport import Hub
from paceline.live.protocol.transport import Envelope, Kind
from paceline.runtime.spec.process_spec import ProcessSpec


@pytest.mark.parametrize("roster", [False, True])
def test_who_comes_when_the_run_is_over_ends_with_a_line_and_exit_code_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], roster: bool
) -> None:
    """As a worker that is started again while the others finish; the coordinator tells it Stop in place of the plan."""
    hub = Hub()
    coordinator = hub.transport(party.COORDINATOR)
    said = (
        [control.Roster(addresses={"worker 1": "here"}, hosts={}, incarnations=(0, 1), gone=(0,), lost=(0,))]
        if roster
        else []
    )
    stop = control.Stop(reason="all epochs are done")

    class Ending:
        def deliver(self, src: party.Party, envelope: Envelope) -> None:
            if isinstance(envelope.message, control.Hello):
                for message in (*said, stop):
                    coordinator.send(src, Envelope(Kind.CONTROL, message))

        def room_for(self, *_: object) -> list[object]:
            return []

        def lost(self, *_: object) -> None: ...
        def failed(self, error: BaseException) -> None: ...

    coordinator.open(Ending())
    spec = ProcessSpec(party="worker 1", workers=2, servers=0, coordinator="", token="", device="cpu", incarnation=1)
    session = spec.session(hub.transport(party.worker(1), 1))

    def sit(*_: object) -> tuple[ProcessSpec, object]:
        session.hello("", "cpu", incarnation=1)
        return spec, session

    monkeypatch.setattr(module, "find_spec", lambda: (None, None))
    monkeypatch.setattr(module, "_sit", sit)
    model = nn.Linear(3, 2)
    with pytest.raises(SystemExit) as ended:
        paceline.join(model, torch.optim.SGD(model.parameters(), lr=0.1), scheme="bsp")
    coordinator.close()
    assert not ended.value.code
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert line == "paceline: the run was over (all epochs are done) before worker 1 took part: it has nothing to train"


def test_who_comes_when_there_is_no_coordinator_says_so_in_one_line(tmp_path: Path) -> None:
    """As a worker that a scheduler starts again, hours after the run and its command have ended."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    token = tmp_path / "token"
    token.write_text("0" * 64)
    place = {"COORDINATOR": address, "RANK": "1", "WORKERS": "2", "TOKEN_FILE": str(token)}
    script = (
        "import torch, paceline; m = torch.nn.Linear(3, 2); paceline.join(m, torch.optim.SGD(m.parameters(), lr=0.1))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, **{f"PACELINE_{name}": value for name, value in place.items()}},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith(f"paceline: worker 1 cannot reach coordinator at {address}: ")
    assert line.endswith("if its run is over, start another one (`paceline launch`), which starts its workers itself")


def test_schedules_go_by_all_workers_or_by_this_one_and_by_nothing_else() -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ConfigError, match=r"schedule='weekly': give 'shared' or 'own'"):
        paceline.join(model, optimizer, "bsp", schedule="weekly")


@pytest.mark.parametrize("limit", [-1, 2.5])
def test_a_largest_batch_is_a_number_of_samples(limit: Any) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ConfigError, match=f"batch_limit={limit}: give a number of samples"):
        paceline.join(model, optimizer, "bsp", batch_limit=limit)


def test_a_worker_that_is_alone_keeps_to_its_largest_batch_too() -> None:
    model, sizes = nn.Linear(2, 1), list[int]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with paceline.join(model, optimizer, "bsp", batch_limit=4) as pace:
        for x, _ in pace.batches(torch.utils.data.TensorDataset(torch.ones(10, 2), torch.ones(10)), 6):
            sizes.append(len(x))
            model(x).sum().backward()
            pace.step()
    assert sizes == [4, 4, 2]
