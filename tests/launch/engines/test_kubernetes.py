"""`--launcher kubernetes`: what is written, and what kubectl is given. Not run on a cluster: kubectl is a stand-in."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.main import main
from paceline.launch.external.detect import detect_external

Capture = pytest.CaptureFixture[str]
WORDS = ["launch", "--launcher", "kubernetes", "-n", "3", "-s", "2"]
ARGS = "image=reg/pl:1 name=night namespace=ml claim=runs gpu=1 memory=8Gi cpu=2"
TRAIN = ["paceline", "train", "--scheme", "gsp"]
KUBECTL = """#!/bin/sh
cd {folder}
echo "$@" >> arguments
call=$1-$(grep -c "^$1 " arguments)
cat > $call
cat $call.made || true
[ ! -e $call.error ] || {{ cat $call.error >&2; exit 1; }}
"""


def written(capsys: Capture, *more: str) -> dict[str, Any]:
    """The objects of a dry run, by their names."""
    assert main([*WORDS, "--launcher-args", ARGS, "--dry-run", *more, *TRAIN]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    return {f"{item['kind']} {item['metadata']['name']}": item for item in items}


def environment(job: dict[str, Any]) -> dict[str, str]:
    told = job["spec"]["template"]["spec"]["containers"][0]["env"]
    return {one["name"]: one.get("value", "10.0.0.1") for one in told}


def test_there_are_a_service_one_who_leads_and_an_indexed_job_of_workers(capsys: Capture) -> None:
    objects = written(capsys, "--restarts", "2")
    assert list(objects) == ["Service night", "Job night", "Job night-workers"]
    workers, leader = objects["Job night-workers"]["spec"], objects["Job night"]["spec"]
    assert (workers["completionMode"], workers["completions"], workers["parallelism"]) == ("Indexed", 3, 3)
    assert (workers["backoffLimit"], leader["backoffLimit"]) == (6, 0)
    for spec in (workers, leader):
        assert spec["template"]["spec"]["containers"][0]["command"] == [*TRAIN, "--restarts", "2"]
    labels = leader["template"]["metadata"]["labels"]
    assert objects["Service night"]["spec"]["selector"].items() <= labels.items()
    assert objects["Service night"]["spec"]["clusterIP"] == "None"
    assert all(item["metadata"]["namespace"] == "ml" for item in objects.values())


def test_what_pods_are_told_makes_them_who_leads_and_its_workers(capsys: Capture) -> None:
    objects = written(capsys, "--env", "A=all", "--env", "worker:B=some")
    leader = detect_external(environment(objects["Job night"]))
    worker = detect_external({**environment(objects["Job night-workers"]), "JOB_COMPLETION_INDEX": "2"})
    assert leader is not None
    assert worker is not None
    assert (leader.leads, leader.workers, leader.servers, leader.own_servers) == (True, 3, 2, True)
    assert (worker.leads, worker.number, worker.host, worker.port) == (False, 2, "night", leader.port)
    assert objects["Service night"]["spec"]["ports"][0]["port"] == leader.port
    assert "B" not in environment(objects["Job night"])
    assert environment(objects["Job night-workers"]).items() >= {"A": "all", "B": "some"}.items()


def test_pods_may_do_little_and_ask_for_what_was_said(capsys: Capture) -> None:
    objects = written(capsys)
    for name in ("Job night", "Job night-workers"):
        pod = objects[name]["spec"]["template"]["spec"]
        container = pod["containers"][0]
        assert pod["securityContext"]["runAsNonRoot"]
        assert not pod["automountServiceAccountToken"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    worker = objects["Job night-workers"]["spec"]["template"]["spec"]["containers"][0]
    assert worker["resources"]["limits"] == {"memory": "8Gi", "nvidia.com/gpu": "1"}
    assert worker["resources"]["requests"] == {"cpu": "2", "memory": "8Gi", "nvidia.com/gpu": "1"}
    assert "resources" not in objects["Job night"]["spec"]["template"]["spec"]["containers"][0]
    volumes = objects["Job night"]["spec"]["template"]["spec"]["volumes"]
    assert volumes[-1] == {"name": "work", "persistentVolumeClaim": {"claimName": "runs"}}


@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_the_objects_are_as_the_schemas_of_kubernetes_have_them(version: str, capsys: Capture) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate").validate
    for item in written(capsys).values():
        validate(item, version, strict=True)


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in that keeps what it is given: no cluster takes part in these tests."""
    program = tmp_path / "kubectl"
    program.write_text(KUBECTL.format(folder=tmp_path))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


def test_kubectl_is_given_a_new_token_and_the_objects_over_its_input(kubectl: Path, capsys: Capture) -> None:
    assert main([*WORDS, "--launcher-args", ARGS, *TRAIN]) == 0
    assert "kubectl -n ml logs -f job/night" in capsys.readouterr().out
    secret, objects = (json.loads((kubectl / call).read_text()) for call in ("create-1", "create-2"))
    token = base64.b64decode(secret["data"]["token"]).decode()
    assert len(token) == 64
    mounted = objects["items"][1]["spec"]["template"]["spec"]["volumes"][0]["secret"]["secretName"]
    assert mounted == secret["metadata"]["name"]
    assert token not in json.dumps(objects)
    assert (kubectl / "arguments").read_text() == "create -f - -o name\n" * 2


def test_what_kubectl_refuses_is_told_in_one_line(kubectl: Path, capsys: Capture) -> None:
    (kubectl / "create-1.error").write_text("warning\nError from server (Forbidden): secrets is forbidden\n")
    assert main([*WORDS, "--launcher-args", ARGS, *TRAIN]) == 1
    expected = "paceline: kubectl create: Error from server (Forbidden): secrets is forbidden\n"
    assert capsys.readouterr().err == expected
    assert (kubectl / "arguments").read_text() == "create -f - -o name\n"


def test_of_what_is_refused_halfway_nothing_is_left_and_what_was_there_is_left_alone(
    kubectl: Path, capsys: Capture
) -> None:
    there = 'Error from server (AlreadyExists): jobs.batch "night" already exists'
    (kubectl / "create-1.made").write_text("secret/night-token\n")
    (kubectl / "create-2.made").write_text("service/night\njob.batch/night-workers\n")
    (kubectl / "create-2.error").write_text(there)
    assert main([*WORDS, "--launcher-args", ARGS, *TRAIN]) == 1
    expected = f"paceline: kubectl create: {there}; give another name=, or delete it first\n"
    assert capsys.readouterr().err == expected
    deleted = (kubectl / "arguments").read_text().splitlines()[2:]
    assert deleted == ["delete --wait=false -n ml secret/night-token service/night job.batch/night-workers"]


def test_a_cluster_that_does_not_answer_is_not_waited_for_without_end(
    kubectl: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kubectl / "kubectl").write_text("#!/bin/sh\nexec sleep 30\n")
    monkeypatch.setattr("paceline.launch.engines.kubernetes.KUBECTL_SECONDS", 0.2)
    assert main([*WORDS, "--launcher-args", ARGS, *TRAIN]) == 1
    assert capsys.readouterr().err.startswith("paceline: kubectl create: no answer within 0 s; whether it was done")


def test_a_setting_given_here_and_in_the_command_is_given_twice(capsys: Capture) -> None:
    assert main([*WORDS, "--launcher-args", ARGS, "--restarts", "2", *TRAIN, "--restarts=1"]) == 2
    assert capsys.readouterr().err == "paceline: --restarts is given twice: give it once\n"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--launcher-args", "name=a"], "needs an image that has Paceline"),
        (["--launcher-args", "image=a gpus=1"], "gpus=1: unknown; did you mean 'gpu'?"),
        (["--launcher-args", "image=a gpu=one"], "gpu=one: a quantity"),
        (["--launcher-args", "image=a name=Night"], "name=Night: small letters, digits and dashes"),
        (["--launcher-args", "image=a", "--interface", "eth0"], "--interface: Kubernetes chooses hosts"),
        (["--launcher-args", "image=a", "--env", "server:A=b"], "--env server:A: in Kubernetes servers are with who"),
        (["--launcher-args", "image=a", "--step-ms", "5"], "--step-ms: a script's run in Kubernetes"),
        (["--launcher-args", "image=a"], "kubectl: no such program; --dry-run writes"),
    ],
)
def test_a_mistake_is_told_in_one_line_before_anything_is_done(
    words: list[str], expected: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert main([*WORDS, *words, "python", "train.py"]) == 2
    err = capsys.readouterr().err
    assert expected in err
    assert len(err.splitlines()) == 1, err
