"""Makes the objects that a run consists of on Kubernetes, as `kubectl create` takes them.

    Service  NAME          headless: the name under which workers call who leads
    Job      NAME          one pod that leads: the coordinator, the evaluator and the servers; it is started again where
                           the run can be resumed
    Job      NAME-workers  Indexed: the pod with completion index k is worker k; one that fails is started again

Both run the same command; who leads is told by PACELINE_ROLE (`paceline.launch.external.detect`). The token that the
parties find one another by is a Secret, which manifests name and never contain. Pods run as an ordinary user, with
nothing added to what it may do, on a root file system that cannot be written.

Pods call no API, so they have no account's token, and no Role. What the launching user needs is
containers/kubernetes/launcher-role.json.

Nothing here has a side effect but `create`. It is written against the schemas of Kubernetes 1.24 and later. A real
kubectl drives it in tests, against a stand-in for the API that runs pods as processes; it was not run on a cluster.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
import secrets
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.core.errors import ConfigError, PacelineError
from paceline.core.registry import nearest
from paceline.launch.external.detect import PORT

NAME = "kubernetes"
"""What `--launcher` calls it."""
USER = 1000
"""The user that pods run as."""
KUBECTL_SECONDS = 60.0
"""Seconds for one kubectl."""
TOKEN_FOLDER, TOKEN_NAME = "/run/paceline", "token"
RESOURCES = {"cpu": "cpu", "memory": "memory", "gpu": "nvidia.com/gpu"}
"""By word of --launcher-args, the name of the resource in Kubernetes."""
_NAME = re.compile(r"[a-z]([-a-z0-9]{0,44}[a-z0-9])?")  # with what is added, a label of DNS
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?")
EXAMPLE = "--launcher-args 'image=registry/paceline:1 name=night gpu=1 memory=8Gi'"
"""What an error shows as the way out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesJob:
    """Describes a run. `image`: has Paceline and the command. `claim`: a PersistentVolumeClaim for what the run leaves.

    resources: of each worker, by the names that Kubernetes has for them.
    """

    image: str
    name: str
    namespace: str = ""
    claim: str = ""
    resources: tuple[tuple[str, str], ...] = ()

    @property
    def secret(self) -> str:
        """Returns the name of the Secret with the run's token."""
        return f"{self.name}-token"


def configured(words: Sequence[str]) -> KubernetesJob:
    """Makes the job from --launcher-args. Raises ConfigError."""
    told: dict[str, str] = {}
    known = ("image", "name", "namespace", "claim", *RESOURCES)
    for word in words:
        key, _, value = word.partition("=")
        if key not in known:
            raise ConfigError(f"--launcher-args {word}: unknown{nearest(key, known)}")
        pattern = _QUANTITY if key in RESOURCES else None if key == "image" else _NAME
        if not value or (pattern and not pattern.fullmatch(value)):
            what = "a quantity, such as 2 or 8Gi" if key in RESOURCES else "small letters, digits and dashes"
            raise ConfigError(f"--launcher-args {word}: {what if pattern else 'name an image'}")
        told[key] = value
    if "image" not in told:
        raise ConfigError(f"--launcher kubernetes needs an image that has Paceline and the command: {EXAMPLE}")
    return KubernetesJob(
        image=told["image"],
        name=told.get("name") or f"paceline-{secrets.token_hex(3)}",
        namespace=told.get("namespace", ""),
        claim=told.get("claim", ""),
        resources=tuple((RESOURCES[key], told[key]) for key in RESOURCES if key in told),
    )


def manifests(
    cluster: KubernetesJob,
    command: Sequence[str],
    *,
    workers: int,
    servers: int,
    restarts: int,
    environment: Mapping[str, str],
    of_workers: Mapping[str, str],
    beginning: int = 0,
) -> dict[str, Any]:
    """Returns a List of all objects but the Secret.

    `environment` is for all parties, `of_workers` for workers too. `beginning`: workers with which the run begins, by
    default all; a larger `parallelism` of their Job lets others join.
    """
    place = {"PACELINE_WORKERS": str(workers), "PACELINE_SERVERS": str(servers)}
    place["PACELINE_LEADER"] = f"{cluster.name}:{PORT}"
    place["PACELINE_TOKEN_FILE"] = f"{TOKEN_FOLDER}/{TOKEN_NAME}"
    if 0 < beginning < workers:
        place["PACELINE_BEGIN_WITH"] = str(beginning)
    leader = _pod(cluster, "leader", command, {**environment, **place, "PACELINE_ROLE": "scheduler"})
    worker = _pod(cluster, "worker", command, {**environment, **of_workers, **place, "PACELINE_ROLE": "worker"})
    worker["spec"]["restartPolicy"] = "OnFailure"
    worker["spec"]["containers"][0]["resources"] = _resources(cluster)
    resumes = bool(cluster.claim) and ("--resume", "auto") in itertools.pairwise(command)
    if resumes:
        leader["spec"]["restartPolicy"] = "OnFailure"
    for pod in (leader, worker) if resumes else (leader,) if cluster.claim else ():  # workers read checkpoints, too
        pod["spec"]["volumes"][-1] = {"name": "work", "persistentVolumeClaim": {"claimName": cluster.claim}}
    return {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            _service(cluster),
            _job(cluster, cluster.name, {"backoffLimit": restarts if resumes else 0, "template": leader}),
            _job(
                cluster,
                f"{cluster.name}-workers",
                {
                    "completionMode": "Indexed",
                    "completions": workers,
                    "parallelism": beginning or workers,
                    "backoffLimit": restarts * workers,
                    "template": worker,
                },
            ),
        ],
    }


def _service(cluster: KubernetesJob) -> dict[str, Any]:
    """Returns the headless service under whose name workers call the leader."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(cluster, cluster.name),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"paceline/run": cluster.name, "paceline/part": "leader"},
            "ports": [{"name": "listener", "port": PORT}],
        },
    }


def _job(cluster: KubernetesJob, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Returns an object of kind Job."""
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(cluster, name), "spec": spec}


def _metadata(cluster: KubernetesJob, name: str) -> dict[str, Any]:
    """Returns name, labels and namespace of an object; by the label all objects of a run are deleted together."""
    told: dict[str, Any] = {"name": name, "labels": {"paceline/run": cluster.name}}
    return told | ({"namespace": cluster.namespace} if cluster.namespace else {})


def _pod(cluster: KubernetesJob, part: str, command: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any]:
    """Returns the template of a pod for one `part` of the run."""
    own_address = {"name": "PACELINE_BIND", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    folders = {"token": TOKEN_FOLDER, "tmp": "/tmp", "shm": "/dev/shm", "work": "/work"}
    container = {
        "name": part,
        "image": cluster.image,
        "command": list(command),
        "workingDir": "/work",
        "env": [{"name": key, "value": value} for key, value in environment.items()] + [own_address],
        "volumeMounts": [
            {"name": name, "mountPath": path} | ({"readOnly": True} if name == "token" else {})
            for name, path in folders.items()
        ],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return {
        "metadata": {"labels": {"paceline/run": cluster.name, "paceline/part": part}},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": USER,
                "fsGroup": USER,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [
                {"name": "token", "secret": {"secretName": cluster.secret, "defaultMode": 0o400}},
                {"name": "tmp", "emptyDir": {}},
                {"name": "shm", "emptyDir": {"medium": "Memory"}},
                {"name": "work", "emptyDir": {}},
            ],
        },
    }


def _resources(cluster: KubernetesJob) -> dict[str, Any]:
    """Returns requests and limits of a worker: devices are limits only, CPUs are not limited, memory is bounded."""
    wanted = dict(cluster.resources)
    limits = {key: value for key, value in wanted.items() if key != "cpu"}
    return {key: value for key, value in (("requests", wanted), ("limits", limits)) if value}


# ---- to a cluster --------------------------------------------------------------------------------------------
def create(cluster: KubernetesJob, objects: dict[str, Any]) -> None:
    """Creates a Secret with a new token, then all objects; over standard input, so that no argument has a secret in it.

    What exists already is somebody's, and left as it is. If something is refused halfway, what this has made is
    deleted. Raises ConfigError without kubectl, PacelineError with what it says.
    """
    data = base64.b64encode(secrets.token_hex(32).encode()).decode()
    metadata = _metadata(cluster, cluster.secret)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "Opaque", "data": {TOKEN_NAME: data}}
    made: list[str] = []
    for what in (secret, objects):
        done = _kubectl("create", "-f", "-", "-o", "name", given=json.dumps(what))
        made += done.stdout.split()
        if done.returncode:
            if made:
                _kubectl("delete", "--wait=false", *(["-n", cluster.namespace] if cluster.namespace else []), *made)
            raise PacelineError(f"kubectl create: {_last_words(done)}")


def _kubectl(*words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Runs kubectl. Raises PacelineError after KUBECTL_SECONDS, ConfigError if there is none."""
    try:
        return subprocess.run(
            ["kubectl", *words], input=given, capture_output=True, text=True, check=False, timeout=KUBECTL_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise PacelineError(
            f"kubectl {words[0]}: no answer within {KUBECTL_SECONDS:.0f} s; whether it was done is not known"
        ) from None
    except FileNotFoundError:
        raise ConfigError("kubectl: no such program; --dry-run writes what it would be given") from None


def _last_words(done: subprocess.CompletedProcess[str]) -> str:
    """Returns what kubectl said last, with a way out where it is known."""
    last = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
    return f"{last}; give another name=, or delete it first" if "(AlreadyExists)" in last else last
