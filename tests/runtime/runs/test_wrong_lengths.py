"""A run of real processes, one of which sends vectors of a wrong length: nobody else is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LIAR = """
import dataclasses

from paceline.core.coordination import party
from paceline.live.net.tcp_transport import TcpTransport

honest = TcpTransport.send


def send(self, to, envelope):
    if self.me == party.worker(2) and type(envelope.message).__name__ == "{kind}":
        v = envelope.message.{name}
        envelope.message = dataclasses.replace(envelope.message, {name}=v[: len(v) - 1])
    honest(self, to, envelope)


TcpTransport.send = send
"""


NOLOCO = ("noloco", "PairPart", "theta", ["--noloco.h", "2", "--steps", "20"])
LOCALSGD = ("localsgd", "Part", "v", ["--localsgd.tau", "2", "--steps", "20"])


@pytest.mark.parametrize(("scheme", "kind", "name", "words"), [NOLOCO, LOCALSGD])
def test_the_others_train_on_and_the_liar_is_named(
    tmp_path: Path, scheme: str, kind: str, name: str, words: list[str]
) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(LIAR.format(kind=kind, name=name))
    words = ["--workers", "3", "--scheme", scheme, *words, "--out", str(tmp_path / "run")]
    run = subprocess.run(
        [sys.executable, "-m", "paceline", "train", *words],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    trace = [json.loads(line) for line in (tmp_path / "run" / "trace.jsonl").read_text().splitlines()]
    lost = {row["party"] for row in trace if row["kind"] == "membership" and row["event"] == "lost"}
    assert lost <= {"worker 2"}
    refused = {row["rank"] for row in trace if row["kind"] == "decision" and row["verdict"] == "refused"}
    refused |= {row["rank"] for row in trace if row["kind"] == "gated" and row["refused"]}
    assert refused == {2}
    trained = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert trained["test_accuracy"] > 0.5
