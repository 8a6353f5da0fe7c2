"""A stand-in for a Kubernetes cluster, on the loopback address: no API server and no kubelet takes part in the tests.

It answers kubectl as the API does (discovery, create, get, list, patch of a Job's parallelism, delete, logs), refuses
what a Role does not allow, and runs the pods of Jobs as processes of this machine. What it does of Kubernetes:

    objects       checked by the published schemas where kubernetes-validate is installed; names are unique
    Service       its name in PACELINE_LEADER leads to a free port of this machine
    Secret        its keys are files, where the pod mounts it
    claim         one folder for all pods that name it; an emptyDir is a folder of its own
    Job           `parallelism` pods at a time, of `completions`; Indexed ones know their index
    a pod fails   OnFailure: it is started again, up to `backoffLimit` times in all; Never: the Job has failed
    delete        the pods of a Job are ended with it

It knows no images, networks, users or limits, and does not wait between restarts. `events` has what was done, in order:
created, scaled, restarted, succeeded, failed, deleted, forbidden.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

from tests.free_port import free_port

KINDS = {"services": ("", "Service"), "secrets": ("", "Secret"), "pods": ("", "Pod"), "jobs": ("batch", "Job")}
"""By the plural: group and kind."""
GROUPS = {"": "/api/v1", "batch": "/apis/batch/v1"}
PATH = re.compile(r"/(?:api/v1|apis/batch/v1)/namespaces/([^/]+)/([^/]+)(?:/([^/]+))?(?:/(log))?")
END_SECONDS = 5.0
Rules = Sequence[Mapping[str, Any]]


class RefusedError(Exception):
    """A request is answered with this status."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
        self.status["message"] = message


class Process(Protocol):
    """Describes what runs a container, as far as it is used."""

    pid: int

    def poll(self) -> int | None: ...

    def wait(self, timeout: float | None = None) -> int: ...


Start = Callable[[list[str], Path, Mapping[str, str], Path], Process]
"""Starts a command in a folder, with an environment and a file for what it prints, in a session of its own."""


@dataclass
class Pod:
    """One pod, as a process of this machine."""

    name: str
    index: int
    folder: Path
    process: Process
    restarts: int = 0


@dataclass
class JobState:
    """A Job and its pods."""

    job: dict[str, Any]
    pods: dict[int, Pod] = field(default_factory=dict)
    succeeded: set[int] = field(default_factory=set)
    restarts: int = 0
    failed: bool = False


class Cluster:
    """The objects and processes. `rules`: of the Role of whoever asks; None allows everything."""

    def __init__(self, folder: Path, start: Start, rules: Rules | None = None) -> None:
        self.events: list[tuple[str, str]] = []
        self.used: set[tuple[str, str]] = set()  # verb and resource of what was asked for
        self._folder, self._start, self._rules = folder, start, rules
        self._objects: dict[tuple[str, str, str], dict[str, Any]] = {}
        self._jobs: dict[str, JobState] = {}
        self._ports: dict[str, int] = {}
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._reconcile, name="jobs", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends every pod."""
        self._over.set()
        self._thread.join()
        for state in self._jobs.values():
            self._end(state)

    # ---- what a test looks at ----------------------------------------------------------------------------
    def pod(self, job: str, index: int = 0) -> Pod:
        """Returns a pod that is there. Raises KeyError without it."""
        with self._lock:
            return self._jobs[job].pods[index]

    def log(self, job: str, index: int = 0) -> str:
        """Returns what a pod has printed, restarts included; "" before it is there."""
        path = self._folder / f"{job}-{index}" / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def names(self) -> list[str]:
        """Returns the objects that are there."""
        with self._lock:
            return sorted(f"{plural}/{name}" for _, plural, name in self._objects)

    # ---- the API -----------------------------------------------------------------------------------------
    def answer(self, verb: str, path: str, body: Any) -> Any:
        """Returns the answer to a request: an object, or text. Raises RefusedError."""
        where = urllib.parse.urlsplit(path)
        if (found := discovery(where.path)) is not None:
            return found
        matched = PATH.fullmatch(where.path)
        if matched is None or matched[2] not in KINDS:
            raise RefusedError(404, "NotFound", f"the stand-in knows no {where.path}")
        namespace, plural, name, log = matched.groups()
        act = {"POST": "create", "DELETE": "delete", "PATCH": "patch"}.get(verb, "get" if name else "list")
        self._allow(act, plural + ("/log" if log else ""))
        query = dict(urllib.parse.parse_qsl(where.query))
        with self._lock:
            if log:
                return self.log(*name.rsplit("-", 1)[:1], int(name.rsplit("-", 1)[1]))
            if act == "create":
                return self._create(namespace, plural, body)
            if act == "list":
                return self._list(namespace, plural, query.get("labelSelector", ""))
            key = (namespace, plural, name)
            if plural == "pods" and act == "get":
                return next((one for one in self._pods(namespace) if one["metadata"]["name"] == name), {})
            if key not in self._objects:
                raise RefusedError(404, "NotFound", f'{plural} "{name}" not found')
            if act == "delete":
                return self._delete(key)
            if act == "patch":
                return self._scale(key, body)
            return self._objects[key]

    def _allow(self, verb: str, resource: str) -> None:
        """Raises RefusedError where the Role does not allow it."""
        group = KINDS[resource.partition("/")[0]][0]
        self.used.add((verb, resource))
        for rule in self._rules if self._rules is not None else ({"verbs": ["*"]},):
            if "*" in rule["verbs"]:
                return
            if verb in rule["verbs"] and resource in rule["resources"] and group in rule["apiGroups"]:
                return
        self.events.append(("forbidden", f"{verb} {resource}"))
        raise RefusedError(
            403, "Forbidden", f'{resource} is forbidden: User "launcher" cannot {verb} resource "{resource}"'
        )

    def _create(self, namespace: str, plural: str, made: dict[str, Any]) -> dict[str, Any]:
        name = made["metadata"]["name"]
        if (namespace, plural, name) in self._objects:
            raise RefusedError(409, "AlreadyExists", f'{plural} "{name}" already exists')
        with contextlib.suppress(ImportError):
            import kubernetes_validate

            try:
                kubernetes_validate.validate(made, "1.30", strict=True)
            except kubernetes_validate.ValidationError as error:
                raise RefusedError(422, "Invalid", str(error)) from None
        made["metadata"] |= {"uid": f"{namespace}-{plural}-{name}", "namespace": namespace, "resourceVersion": "1"}
        self._objects[namespace, plural, name] = made
        self.events.append(("created", f"{plural}/{name}"))
        if plural == "jobs":
            made["spec"]["selector"] = {"matchLabels": {"job-name": name}}
            self._jobs[name] = JobState(made)
        return made

    def _list(self, namespace: str, plural: str, selector: str) -> dict[str, Any]:
        wanted = dict(one.split("=", 1) for one in selector.split(",") if one)
        _, kind = KINDS[plural]
        found = [one for (place, what, _), one in self._objects.items() if (place, what) == (namespace, plural)]
        found += self._pods(namespace) if plural == "pods" else []
        items = [one for one in found if wanted.items() <= one["metadata"].get("labels", {}).items()]
        group = KINDS[plural][0]
        return {"kind": f"{kind}List", "apiVersion": f"{group}/v1".lstrip("/"), "metadata": {}, "items": items}

    def _pods(self, namespace: str) -> list[dict[str, Any]]:
        """Returns the pods of all Jobs, also those that have succeeded."""
        pods = []
        for name, state in self._jobs.items():
            template = state.job["spec"]["template"]
            for index in sorted(state.succeeded | set(state.pods)):
                labels = template["metadata"]["labels"] | {"job-name": name}
                metadata = {"name": f"{name}-{index}", "namespace": namespace, "labels": labels}
                phase = "Succeeded" if index in state.succeeded else "Running"
                pods.append({"metadata": metadata, "spec": template["spec"], "status": {"phase": phase}})
        return [{"apiVersion": "v1", "kind": "Pod", **pod} for pod in pods]

    def _delete(self, key: tuple[str, str, str]) -> dict[str, Any]:
        del self._objects[key]
        _, plural, name = key
        self.events.append(("deleted", f"{plural}/{name}"))
        if plural == "jobs":
            self._end(self._jobs.pop(name))
        return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _scale(self, key: tuple[str, str, str], patch: dict[str, Any]) -> dict[str, Any]:
        if list(patch) != ["spec"] or list(patch["spec"]) != ["parallelism"]:
            raise RefusedError(422, "Invalid", "the stand-in patches the parallelism of a Job alone")
        job = self._objects[key]
        job["spec"]["parallelism"] = patch["spec"]["parallelism"]
        self.events.append(("scaled", f"{key[1]}/{key[2]} to {patch['spec']['parallelism']}"))
        return job

    # ---- the Jobs ----------------------------------------------------------------------------------------
    def _reconcile(self) -> None:
        """Starts the pods that are wanted and looks after those that have ended, until `close`."""
        while not self._over.wait(0.05):
            with self._lock:
                for name, state in list(self._jobs.items()):
                    self._look_after(name, state)

    def _look_after(self, name: str, state: JobState) -> None:
        spec = state.job["spec"]
        for index, pod in list(state.pods.items()):
            code = pod.process.poll()
            if code is None:
                continue
            if code == 0:
                del state.pods[index]
                state.succeeded.add(index)
                self.events.append(("succeeded", f"{name}-{index}"))
            elif spec["template"]["spec"]["restartPolicy"] == "OnFailure" and state.restarts < spec["backoffLimit"]:
                state.restarts += 1
                pod.restarts += 1
                self.events.append(("restarted", f"{name}-{index}"))
                pod.process = self._process(name, state, index, pod.folder)
            else:
                state.failed = True
                self.events.append(("failed", name))
                self._end(state)
                return
        wanted = [n for n in range(spec.get("completions", 1)) if n not in state.succeeded and n not in state.pods]
        while wanted and not state.failed and len(state.pods) < spec.get("parallelism", 1):
            index = wanted.pop(0)
            folder = self._folder / f"{name}-{index}"
            folder.mkdir(exist_ok=True)
            process = self._process(name, state, index, folder)
            state.pods[index] = Pod(f"{name}-{index}", index, folder, process)

    def _process(self, name: str, state: JobState, index: int, folder: Path) -> Process:
        """Starts the container of a pod as a process."""
        pod = state.job["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        mounted = {one["name"]: one["mountPath"] for one in container["volumeMounts"]}
        place = {mounted[volume["name"]]: self._volume(state, volume, folder) for volume in pod["volumes"]}
        given = {
            one["name"]: one.get("value", "127.0.0.1") for one in container["env"]
        }  # its address is this machine's
        for key, value in given.items():
            inside = next((path for path in place if value.startswith(path + "/")), None)
            given[key] = str(place[inside] / value[len(inside) + 1 :]) if inside else value
        host, _, port = given["PACELINE_LEADER"].partition(":")
        given["PACELINE_LEADER"] = f"127.0.0.1:{self._port_of(host, port)}"
        if state.job["spec"].get("completionMode") == "Indexed":
            given["JOB_COMPLETION_INDEX"] = str(index)
        environment = {**_own(), **given}
        return self._start(container["command"], place[container["workingDir"]], environment, folder / "log")

    def _volume(self, state: JobState, volume: dict[str, Any], folder: Path) -> Path:
        """Returns the folder that stands for a volume of a pod."""
        if "persistentVolumeClaim" in volume:
            path = self._folder / f"claim-{volume['persistentVolumeClaim']['claimName']}"
        else:
            path = folder / volume["name"]
        path.mkdir(exist_ok=True)
        if "secret" in volume:
            key = (state.job["metadata"]["namespace"], "secrets", volume["secret"]["secretName"])
            for name, data in self._objects[key]["data"].items():
                (path / name).unlink(missing_ok=True)  # that of an earlier start can only be read
                (path / name).write_bytes(base64.b64decode(data))
                (path / name).chmod(0o400)
        return path

    def _port_of(self, host: str, port: str) -> int:
        """Returns the port of this machine that stands for that of a service."""
        assert any(plural == "services" and name == host for _, plural, name in self._objects), f"no service {host}"
        if f"{host}:{port}" not in self._ports:
            self._ports[f"{host}:{port}"] = free_port()
        return self._ports[f"{host}:{port}"]

    def _end(self, state: JobState) -> None:
        """Ends the pods of a Job."""
        for pod in state.pods.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pod.process.pid, signal.SIGTERM)
        until = time.monotonic() + END_SECONDS
        for pod in state.pods.values():
            try:
                pod.process.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                os.killpg(pod.process.pid, signal.SIGKILL)
                pod.process.wait()
        state.pods.clear()


def _own() -> dict[str, str]:
    """Returns what pods need of this process's environment."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("PACELINE_", "KUBE"))}


def discovery(path: str) -> dict[str, Any] | str | None:
    """Returns what says which kinds of object there are; None for another path."""
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == "/apis":
        version = {"groupVersion": "batch/v1", "version": "v1"}
        group = {"name": "batch", "versions": [version], "preferredVersion": version}
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]}
    if path == "/version":
        return {"major": "1", "minor": "32", "gitVersion": "v1.32.0-stand-in"}
    if path == "/openapi/v2":  # an empty document: kubectl knows nothing of a List's items, and does not check them
        return ""
    if path == "/openapi/v3":
        return {"paths": {of[1:]: {"serverRelativeURL": f"/openapi/v3{of}"} for of in GROUPS.values()}}
    for group, of in GROUPS.items():
        kinds = {plural: kind for plural, (own, kind) in KINDS.items() if own == group}
        if path == of:
            resources = [
                {"name": plural, "singularName": kind.lower(), "namespaced": True, "kind": kind, "verbs": ["create"]}
                for plural, kind in kinds.items()
            ]
            version = f"{group}/v1".lstrip("/")
            return {"kind": "APIResourceList", "groupVersion": version, "resources": resources}
        if path == f"/openapi/v3{of}":  # the server checks fields, kubectl need not
            told = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
            paths = {
                f"{of}/namespaces/{{namespace}}/{plural}/{{name}}": {
                    "patch": {
                        "parameters": [told],
                        "x-kubernetes-group-version-kind": {"group": group, "version": "v1", "kind": kind},
                    }
                }
                for plural, kind in kinds.items()
            }
            return {"openapi": "3.0.0", "info": {"title": "stand-in", "version": "1"}, "paths": paths}
    return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cluster: Cluster

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        code = 201 if self.command == "POST" else 200
        try:
            told = self.cluster.answer(self.command, self.path, json.loads(body) if body else None)
        except RefusedError as refused:
            code, told = refused.status["code"], refused.status
        text = told.encode() if isinstance(told, str) else json.dumps(told).encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/plain" if isinstance(told, str) else "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_DELETE = do_PATCH = _serve  # noqa: N815  names of the library

    def log_message(self, *_: Any) -> None:
        pass


@contextlib.contextmanager
def served(folder: Path, start: Start, rules: Rules | None = None) -> Iterator[tuple[Cluster, Path]]:
    """Yields the cluster, and the kubeconfig with which kubectl asks it."""
    cluster = Cluster(folder, start, rules)
    handler = type("Handler", (_Handler,), {"cluster": cluster})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "stand-in", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "contexts": [{"name": "stand-in", "context": {"cluster": "stand-in", "user": "", "namespace": "default"}}],
        "current-context": "stand-in",
    }
    (folder / "kubeconfig").write_text(json.dumps(config))
    try:
        yield cluster, folder / "kubeconfig"
    finally:
        server.shutdown()
        server.server_close()
        cluster.close()
