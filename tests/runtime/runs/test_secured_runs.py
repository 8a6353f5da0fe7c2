"""A run under TLS: the same model as without, and none of its secrets anywhere but in its folder of keys."""

from __future__ import annotations

import dataclasses
import os
import zlib
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from paceline.launch.local.launcher import LocalHost
from paceline.launch.local.train import Silent, make_supervisor
from tests.runtime.conftest import Runner
from tests.runtime.one_process import config_for, saved

pytest.importorskip("cryptography", reason="`make` installs what a run's authority needs")
STEPS = 4


def test_the_same_bits_under_tls_as_without(processes: Runner, tmp_path: Path) -> None:
    way = {"transport": "tcp", "streams": 2}
    secured = config_for(tmp_path / "tls", steps=STEPS, cluster={"tls": "on", **way})
    plain = config_for(tmp_path / "plain", steps=STEPS, cluster=way)
    processes(secured)
    processes(plain)
    ours, theirs = saved(secured), saved(plain)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


class Watching(Silent):
    """Reads what others of this machine could see of the processes of a run, while it runs."""

    def __init__(self) -> None:
        self.seen = b""
        self.header: Sequence[str] = ()

    def begin(self, lines: Sequence[str]) -> None:
        self.header = lines
        for process in Path("/proc").glob("[0-9]*"):
            for name in ("cmdline", "environ"):
                try:
                    if process.stat().st_uid == os.getuid():
                        self.seen += (process / name).read_bytes()
                except OSError:  # gone meanwhile
                    continue


def test_no_secret_is_in_what_a_run_shows_and_leaves(host: LocalHost, out: Path) -> None:
    watching = Watching()
    config = config_for(out, steps=STEPS, cluster={"tls": "on"})
    config = dataclasses.replace(config, run=dataclasses.replace(config.run, record=True))
    supervisor = make_supervisor(config, host.launcher(), watching)
    credentials = supervisor._credentials
    assert credentials is not None
    keys = [file.read_text() for file in Path(credentials.path).glob("*-*.pem")]
    token = supervisor._make_specs.keywords["token"]
    secrets = [token, *(key.partition("PRIVATE KEY-----\n")[2].splitlines()[1] for key in keys)]
    assert len(set(secrets)) > config.cluster.workers + config.cluster.servers
    supervisor.run()
    left = b"".join(file.read_bytes() for file in sorted(out.rglob("*")) if file.is_file())
    recordings = sorted(out.rglob("*.jsonl.gz"))
    assert recordings
    left += b"".join(zlib.decompressobj(31).decompress(file.read_bytes()) for file in recordings)
    assert [secret for secret in secrets if secret.encode() in watching.seen + left] == []
    assert any(line.startswith("security: TLS 1.3 on 127.0.0.1") for line in watching.header)
    assert not Path(credentials.path).exists(), "the keys go with the run"
