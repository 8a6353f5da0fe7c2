"""`--launcher kubernetes`: what is written, and what kubectl is given. No cluster takes part: kubectl is a stand-in, or
the real one asks a stand-in for the API, which runs pods as processes (`kubernetes_stand_in.py`)."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from paceline.cli.main import main
from paceline.launch.external.detect import detect_external
from tests.launch.engines.kubernetes_stand_in import Cluster, served
from tests.launch.forked_cli import Command, Warm
from tests.launch.process_tree import within

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


def written(capsys: Capture, *more: str, train: tuple[str, ...] = ()) -> dict[str, Any]:
    """The objects of a dry run, by their names; `more` options of launch, and of train."""
    assert main([*WORDS, "--launcher-args", ARGS, "--dry-run", *more, *TRAIN, *train]) == 0
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


def test_a_run_that_begins_with_fewer_workers_lets_the_others_join(capsys: Capture) -> None:
    objects = written(capsys, train=("--initial-workers", "2"))
    workers = objects["Job night-workers"]["spec"]
    assert (workers["completions"], workers["parallelism"]) == (3, 2)
    leader = detect_external(environment(objects["Job night"]))
    assert leader is not None
    assert leader.initial_workers == 2


def test_who_leads_is_started_again_where_the_run_can_be_resumed(capsys: Capture) -> None:
    once = written(capsys, "--restarts", "2")["Job night"]["spec"]
    again = written(capsys, "--restarts", "2", "--resume", "auto")["Job night"]["spec"]
    assert (once["backoffLimit"], once["template"]["spec"]["restartPolicy"]) == (0, "Never")
    assert (again["backoffLimit"], again["template"]["spec"]["restartPolicy"]) == (2, "OnFailure")
    workers = written(capsys, "--resume", "auto")["Job night-workers"]["spec"]["template"]["spec"]
    assert workers["volumes"][-1] == once["template"]["spec"]["volumes"][-1], "they read the checkpoint"


# ---- against a stand-in for the API --------------------------------------------------------------------------
ROLE = Path(__file__).parents[3] / "containers" / "kubernetes" / "launcher-role.json"
PATIENCE_SECONDS = 120.0
SMALL = ["--data", "digits", "--step-ms", "20"]
SAMPLES = 1437
"""Of an epoch of digits."""


def eventually(what: Callable[[], bool], cluster: Cluster) -> None:
    """Waits until it is so. Fails with what the pods have printed."""
    assert within(PATIENCE_SECONDS, what), (
        f"{cluster.events}\n{cluster.log('night')}\n{cluster.log('night-workers', 1)}"
    )


def kubectl_says(*words: str) -> str:
    """What the real kubectl says. Fails where it refuses."""
    done = subprocess.run(["kubectl", *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_the_role_is_as_the_schemas_have_it(version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate").validate
    validate(json.loads(ROLE.read_text()), version, strict=True)


@pytest.fixture
def cluster(warm: Warm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    """A stand-in for a cluster, whose API allows what the Role of a launching user does. Its pods are forked."""
    if shutil.which("kubectl") is None:
        pytest.skip("there is no kubectl here")

    def start(command: list[str], folder: Path, environment: Mapping[str, str], log: Path) -> Command:
        assert command[0] == "paceline"
        return warm.paceline(*command[1:], folder=folder, environment=environment, log=log)

    with served(tmp_path, start, json.loads(ROLE.read_text())["rules"]) as (cluster, config):
        monkeypatch.setenv("KUBECONFIG", str(config))
        monkeypatch.setenv("HOME", str(tmp_path))
        yield cluster


def test_over_a_stand_in_a_lost_worker_is_restarted_another_joins_and_all_is_deleted(
    cluster: Cluster, capsys: Capture
) -> None:
    words = ["launch", "--launcher", "kubernetes", "-n", "3", "-s", "1"]
    run = ["paceline", "train", "--scheme", "asp", "--initial-workers", "2", *SMALL, "--epochs", "40"]
    assert main([*words, "--launcher-args", "image=reg/pl:1 name=night", *run]) == 0
    printed = capsys.readouterr().out
    assert cluster.names() == ["jobs/night", "jobs/night-workers", "secrets/night-token", "services/night"]
    eventually(lambda: "accuracy" in cluster.log("night"), cluster)
    os.kill(cluster.pod("night-workers", 1).process.pid, signal.SIGKILL)
    eventually(lambda: "is back" in cluster.log("night"), cluster)
    patch = json.dumps({"spec": {"parallelism": 3}})
    assert f"patch job night-workers -p '{patch}'" in printed
    kubectl_says("patch", "job", "night-workers", "-p", patch)
    eventually(lambda: "its first incarnation" in cluster.log("night"), cluster)
    eventually(lambda: ("succeeded", "night-0") in cluster.events, cluster)
    assert "asp: test accuracy" in kubectl_says("logs", "job/night")
    kubectl_says("delete", "job,service,secret", "-l", "paceline/run=night")
    assert cluster.names() == []
    events = [event for event in cluster.events if event[0] in ("restarted", "scaled", "forbidden", "failed")]
    assert events == [("restarted", "night-workers-1"), ("scaled", "jobs/night-workers to 3")]
    allowed = {
        (verb, resource)
        for rule in json.loads(ROLE.read_text())["rules"]
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }
    assert cluster.used <= allowed
    # Here all is deleted at once. Where a controller takes its time, kubectl waits by watching.
    assert {verb for verb, _ in allowed - cluster.used} == {"watch"}, "the Role allows no more than is needed"


def test_over_a_stand_in_a_lost_leader_is_restarted_and_resumes_the_run(cluster: Cluster, tmp_path: Path) -> None:
    words = ["launch", "--launcher", "kubernetes", "-n", "2", "-s", "1", "--restarts", "3"]
    run = ["paceline", "train", "--scheme", "asp", *SMALL, "--epochs", "12"]
    run += ["--out", "runs/a", "--checkpoint-every", "0.5", "--resume", "auto"]
    assert main([*words, "--launcher-args", "image=reg/pl:1 name=night claim=disk", *run]) == 0
    kept = tmp_path / "claim-disk" / "runs" / "a" / "checkpoints"
    eventually(lambda: any(kept.glob("*/manifest.json")), cluster)
    os.killpg(cluster.pod("night").process.pid, signal.SIGKILL)
    eventually(lambda: ("succeeded", "night-0") in cluster.events, cluster)
    assert cluster.events.count(("restarted", "night-0")) == 1
    assert "resumes checkpoint " in cluster.log("night")
    summary = json.loads((kept.parent / "summary.json").read_text())
    assert summary["samples"] >= 12 * SAMPLES, "what the first leader trained counts, too"


def test_what_the_role_does_not_allow_is_one_line(cluster: Cluster, capsys: Capture) -> None:
    cluster._rules = [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "delete", "get"]}]
    assert main(["launch", "--launcher", "kubernetes", "--launcher-args", "image=i name=night", *TRAIN]) == 1
    assert "is forbidden" in capsys.readouterr().err.splitlines()[-1]
    assert cluster.names() == [], "the Secret that was made is deleted"
