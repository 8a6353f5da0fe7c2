"""The container files say what the package understands; `make container-test` carries them out, as root."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from paceline.cli.main import main
from paceline.launch.external.detect import detect_external
from scripts import container_root

CONTAINERS = container_root.CONTAINERS
KUSTOMIZATION = CONTAINERS / "kubernetes" / "kustomization.yaml"


def parties(workers: int) -> list[container_root.Party]:
    return container_root.parties(yaml.safe_load((CONTAINERS / "compose.yaml").read_text()), workers)


def test_what_the_dockerfile_copies_is_in_the_checkout() -> None:
    steps = container_root.steps((CONTAINERS / "Dockerfile").read_text())
    copied = [name for word, text in steps if word == "COPY" for name in text.split()[:-1]]
    assert set(copied) >= {"paceline", "pyproject.toml"}
    assert all((container_root.ROOT / name).exists() for name in copied)


def test_lines_of_a_dockerfile_that_go_on_are_one_step() -> None:
    assert container_root.steps("# a\nFROM debian:x-slim\nRUN one \\\n && two\n") == [
        ("FROM", "debian:x-slim"),
        ("RUN", "one  && two"),
    ]


def test_defaults_of_variables_are_filled_in() -> None:
    assert container_root.filled("${A:-1} ${B:-2} $C", {"B": "3", "C": "4"}) == "1 3 4"


def test_the_composed_services_are_one_who_leads_and_its_workers() -> None:
    leader, *workers = parties(3)
    found = detect_external(leader.environment)
    assert found is not None
    assert (found.leads, found.workers, found.servers, found.host) == (True, 3, 1, leader.name)
    assert len(workers) == 3
    for worker in workers:
        told = detect_external(worker.environment)
        assert told is not None
        assert (told.leads, told.workers, told.host, told.port) == (False, 3, found.host, found.port)
        assert worker.command == leader.command
    assert len({party.address for party in (leader, *workers)}) == 4


def test_the_kustomize_base_is_what_the_launcher_writes(capsys: pytest.CaptureFixture[str]) -> None:
    found = re.search(r"#\s+paceline (launch .*) > run\.json", KUSTOMIZATION.read_text().replace("\\\n#", ""))
    assert found
    words = [word.strip("'") for word in re.findall(r"'[^']*'|\S+", found[1])]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((CONTAINERS / "kubernetes" / "run.json").read_text())


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl, whose kustomize builds it")
def test_kustomize_gives_pods_the_image_and_the_token_of_the_overlay(tmp_path: Path) -> None:
    shutil.copytree(CONTAINERS / "kubernetes", tmp_path / "base")
    (tmp_path / "base" / "token").write_text("0" * 64)
    command = ["kubectl", "kustomize", str(tmp_path / "base")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    objects = list(yaml.safe_load_all(done.stdout))
    (secret,) = (one["metadata"]["name"] for one in objects if one["kind"] == "Secret")
    for job in (one for one in objects if one["kind"] == "Job"):
        pod = job["spec"]["template"]["spec"]
        assert pod["containers"][0]["image"] == "registry.example/paceline:1"
        assert secret in [volume.get("secret", {}).get("secretName") for volume in pod["volumes"]]
