"""`--launcher yarn`: what is executed, and what the ResourceManager is asked.

No YARN takes part: the REST answers come from a stand-in here, as strict as the documentation of Hadoop 3.3.6 has them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from paceline.core.errors import PacelineError
from paceline.launch.engines import yarn

AGENT = ["python", "-m", "paceline.launch.remote.agent", "--dial", "/a folder/ticket"]


class StandIn(BaseHTTPRequestHandler):
    """A ResourceManager's applications, by id: name and state."""

    apps: dict[str, list[str]]

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        if asked.path != "/ws/v1/cluster/apps":
            self._answer(404, {"RemoteException": {"exception": "NotFoundException"}})
            return
        states = parse_qs(asked.query)["states"][0].split(",")
        found = [{"id": i, "name": name, "state": state} for i, (name, state) in self.apps.items() if state in states]
        self._answer(200, {"apps": {"app": found} if found else None})  # as Hadoop says that there are none

    def do_PUT(self) -> None:
        asked = urlsplit(self.path)
        number = asked.path.removeprefix("/ws/v1/cluster/apps/").removesuffix("/state")
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if body != {"state": "KILLED"} or self.headers["Content-Type"] != "application/json":
            self._answer(400, {})
        elif "user.name" not in parse_qs(asked.query):
            self._answer(401, {})
        else:
            self.apps[number][1] = "KILLED"
            self._answer(202, {"state": "KILLED"})

    def _answer(self, code: int, body: dict[str, object]) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def manager() -> Iterator[str]:
    StandIn.apps = {
        "application_1_0001": ["paceline-ours", "RUNNING"],
        "application_1_0002": ["paceline-other", "RUNNING"],
        "application_1_0003": ["paceline-ours", "FINISHED"],
    }
    server = ThreadingHTTPServer(("127.0.0.1", 0), StandIn)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_distributed_shell_gets_the_agents_command_in_one_word() -> None:
    words = ["jar=/h/ds.jar", "memory=4096", "cores=2", "queue=gpu", "manager=http://rm:8088/"]
    engine = yarn.configured(words, "/src")
    command = engine.command(3, AGENT)
    assert command[:4] == ["yarn", yarn.CLIENT, "-jar", "/h/ds.jar"]
    assert command[command.index("-num_containers") + 1] == "3"
    assert (
        command[command.index("-shell_command") + 1]
        == "python -m paceline.launch.remote.agent --dial '/a folder/ticket'"
    )
    assert command[command.index("-shell_env") + 1] == "PYTHONPATH=/src"
    assert command[-6:] == ["-container_memory", "4096", "-container_vcores", "2", "-queue", "gpu"]
    assert engine.cancel()[-2:] == ["http://rm:8088", engine.job]
    assert engine.job != yarn.configured(words, "").job


def test_what_runs_under_the_jobs_name_is_killed_and_nothing_else(manager: str) -> None:
    assert yarn.kill(manager, "paceline-ours") == ["application_1_0001"]
    states = [state for _, state in StandIn.apps.values()]
    assert states == ["KILLED", "RUNNING", "FINISHED"]
    assert yarn.kill(manager, "paceline-ours") == []
    StandIn.apps = {}
    assert yarn.kill(manager, "paceline-ours") == []


def test_what_is_no_resource_manager_is_told(manager: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(PacelineError, match="the ResourceManager, GET .*HTTP Error 404"):
        yarn.kill(f"{manager}/elsewhere", "x")
    assert yarn.main(["http://127.0.0.1:9", "x"]) == 1
    assert "refused" in capsys.readouterr().err
