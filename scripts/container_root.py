"""Carries out containers/Dockerfile without a container engine, and runs containers/compose.yaml in what it made.

    python -m scripts.container_root ROOT [--find-links DIR] [--workers 2]      as root; needs debootstrap, ip, unshare

The base image is replaced by a root that debootstrap makes of the same Debian release; every other line of the
Dockerfile is carried out in it. Then each service of the compose file is started as its command says: in a mount and
network namespace of its own, on a read-only root, as the image's user, with an address in the compose file's network.
That is what an engine does with it, as far as this run can show; the engine itself, its image format and its own
resolver of names are not tried. ROOT is kept when it was whole already. `--find-links` is a folder of wheels that pip
looks into as well. The exit code is 1 if a step or the run fails.
"""

from __future__ import annotations

import argparse
import contextlib
import ipaddress
import json
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
CONTAINERS = ROOT / "containers"
RUN_S = 300.0
"""Seconds that the trial run may take."""
WHOLE = "container.json"
"""A file beside the root that has the image's settings, written once every step has succeeded."""
_VARIABLE = re.compile(r"\$\{?(\w+)(?::-([^}]*))?\}?")


@dataclass
class Image:
    """Holds what a Dockerfile says of the processes to come: their environment, their user and their folder."""

    environment: dict[str, str] = field(default_factory=dict)
    user: str = "0"
    folder: str = "/"


def steps(dockerfile: str) -> list[tuple[str, str]]:
    """Returns the instructions of a Dockerfile, each with its text; lines that end in a backslash go on."""
    lines = [line for line in dockerfile.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    whole = "\n".join(lines).replace("\\\n", "")
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in whole.splitlines())]


def filled(text: str, values: Mapping[str, str]) -> str:
    """Returns `text` with ${NAME:-default} and $NAME replaced, as compose files and Dockerfiles do."""
    return _VARIABLE.sub(lambda found: values.get(found[1]) or found[2] or "", text)


# ---- the image -----------------------------------------------------------------------------------------------
def build(root: Path, find_links: Path | None) -> Image:
    """Carries out the Dockerfile in `root`; returns the image's settings. Raises CalledProcessError, ValueError."""
    kept = root.with_name(f"{root.name}.{WHOLE}")
    if kept.exists():
        return Image(**json.loads(kept.read_text()))
    image, arguments = Image(), {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
    for word, text in steps((CONTAINERS / "Dockerfile").read_text()):
        print(f"{word} {text[:100]}", flush=True)
        match word:
            case "FROM":
                release = text.removeprefix("debian:").removesuffix("-slim")
                subprocess.run(["debootstrap", "--variant=minbase", release, str(root)], check=True, stdout=sys.stderr)
                shutil.copy("/etc/resolv.conf", root / "etc/resolv.conf")
                (root / "etc/hosts").touch()
            case "ARG":
                name, _, value = text.partition("=")
                arguments[name] = value.strip('"')
            case "ENV":
                name, _, value = text.partition("=")
                image.environment[name] = filled(value, arguments | image.environment)
            case "COPY":
                _copy(text.split(), root)
            case "RUN":
                _run(text, root, arguments | image.environment, find_links)
            case "USER":
                image.user = text
            case "WORKDIR":
                image.folder = text
            case "CMD":
                pass
            case _:
                raise ValueError(f"containers/Dockerfile: {word} is not carried out here")
    kept.write_text(json.dumps(vars(image)))
    return image


def _copy(words: Sequence[str], root: Path) -> None:
    """Copies from the checkout into `root`, as COPY does: a folder's content, or files into a folder."""
    *sources, target = words
    for source in (ROOT / name for name in sources):
        into = root / target.lstrip("/")
        if source.is_dir():
            shutil.copytree(source, into, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
        else:
            into.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, into)


def _run(text: str, root: Path, environment: Mapping[str, str], find_links: Path | None) -> None:
    """Runs a shell line in `root`, with /proc and this host's certificates and wheels, as an engine is given them."""
    script = 'mount -t proc proc "$0/proc"\n'
    more = dict(environment)
    if find_links:
        (root / "wheels").mkdir(exist_ok=True)
        script += f'mount --bind {shlex.quote(str(find_links))} "$0/wheels"\n'
        more["PIP_FIND_LINKS"] = "/wheels"
    if certificates := os.environ.get("PIP_CERT"):
        (root / "ca.crt").write_bytes(Path(certificates).read_bytes())
        more["PIP_CERT"] = "/ca.crt"
    script += 'exec chroot "$0" /bin/sh -ec "$1"'
    subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "sh", "-ec", script, str(root), text], check=True, env=more
    )


# ---- the run -------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Party:
    """Describes one container of the compose file: its name, address, command and environment."""

    name: str
    address: str
    command: list[str]
    environment: dict[str, str]
    writable: list[str]


def _subnet(compose: dict[str, Any]) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    """Returns the addresses of the compose file's only network."""
    (only,) = compose["networks"].values()
    (config,) = only["ipam"]["config"]
    return ipaddress.ip_network(config["subnet"])


def parties(compose: dict[str, Any], workers: int) -> list[Party]:
    """Returns the containers of the compose file with `workers` workers, each with an address of its network."""
    values = {"WORKERS": str(workers), "EPOCHS": "3"}
    subnet = _subnet(compose)
    found: list[Party] = []
    for name, service in compose["services"].items():
        replicas = int(filled(str(service.get("deploy", {}).get("replicas", 1)), values))
        volumes = [one.partition(":")[2] for one in service.get("volumes", [])]
        for i in range(replicas):
            found.append(
                Party(
                    name=name if replicas == 1 else f"{name}{i}",
                    address=str(subnet[2 + len(found)]),
                    command=[filled(word, values) for word in service["command"]],
                    environment={key: filled(str(value), values) for key, value in service["environment"].items()},
                    writable=[*service["tmpfs"], *volumes],
                )
            )
    return found


@contextlib.contextmanager
def network(here: Sequence[Party], prefix: int) -> Iterator[None]:
    """Makes a network namespace for each party, on a bridge that lies in a namespace too; removes them at the end."""
    spaces = [_space("hub"), *(_space(party.name) for party in here)]
    try:
        for space in spaces:
            _ip("netns", "add", space)
            _ip("-n", space, "link", "set", "lo", "up")
        hub = spaces[0]
        _ip("-n", hub, "link", "add", "br0", "type", "bridge", "stp_state", "0", "forward_delay", "0")
        _ip("-n", hub, "link", "set", "br0", "up")
        for party in here:
            space = _space(party.name)
            _ip("-n", hub, "link", "add", party.name, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("-n", hub, "link", "set", party.name, "master", "br0", "up")
            _ip("-n", space, "addr", "add", f"{party.address}/{prefix}", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")
        yield
    finally:
        for space in spaces:
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)


def _space(name: str) -> str:
    """Returns the network namespace of a party."""
    return f"paceline{os.getpid()}{name}"


def _ip(*words: str) -> None:
    """Runs ip(8). Raises CalledProcessError."""
    subprocess.run(["ip", *words], check=True)


def started(party: Party, image: Image, root: Path, names: Path, token: Path) -> subprocess.Popen[str]:
    """Starts a party on a read-only `root`, with folders that its service may write, hosts' names and the token."""
    user = int(image.user)
    script = 'mount --bind "$0" "$0"\nmount -o remount,ro,bind "$0"\nmount -t proc proc "$0/proc"\n'
    script += 'mount -t tmpfs -o mode=1777 tmpfs "$0/dev/shm"\nmount -t tmpfs -o mode=1777 tmpfs "$0/run"\n'
    script += f'mount --bind {shlex.quote(str(names))} "$0/etc/hosts"\n'
    script += "".join(f'mount -t tmpfs -o mode=1777 tmpfs "$0{path}"\n' for path in sorted(party.writable))
    script += (
        f'mkdir "$0/run/secrets"; install -m 400 -o {user} -g {user} {shlex.quote(str(token))} "$0/run/secrets/token"\n'
    )
    script += (
        f'exec {shutil.which("chroot")} --userspec={user}:{user} "$0" sh -ec \'cd {image.folder}; exec "$@"\' - "$@"'
    )
    space = [
        "nsenter",
        f"--net=/run/netns/{_space(party.name)}",
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
    ]
    return subprocess.Popen(
        [*space, "sh", "-ec", script, str(root), *party.command],
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"} | image.environment | party.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def trial(image: Image, root: Path, workers: int) -> int:
    """Runs the compose file's services; prints what each said; returns how many of them failed."""
    compose = yaml.safe_load((CONTAINERS / "compose.yaml").read_text())
    here = parties(compose, workers)
    names, token = root.with_name(f"{root.name}.hosts"), root.with_name(f"{root.name}.token")
    names.write_text("127.0.0.1 localhost\n" + "".join(f"{party.address} {party.name}\n" for party in here))
    token.write_text(secrets.token_hex(32))
    token.chmod(0o600)
    failed = 0
    with network(here, _subnet(compose).prefixlen):
        running = [(party, started(party, image, root, names, token)) for party in here]
        try:
            for party, process in running:
                said, _ = process.communicate(timeout=RUN_S)
                failed += process.returncode != 0
                print(f"== {party.name} at {party.address}: exit code {process.returncode}\n{said.strip()}", flush=True)
        finally:
            for _, process in running:
                process.kill()
                process.wait()
            token.unlink()
    return failed


def main(words: list[str] | None = None) -> int:
    """Builds the root where it is not whole, runs the services in it, and says what failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path)
    parser.add_argument("--find-links", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(words)
    missing = [name for name in ("debootstrap", "ip", "nsenter", "unshare", "chroot") if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        print(f"needs to be root, with debootstrap and iproute2{': no ' + ', '.join(missing) if missing else ''}")
        return 1
    root = options.root.resolve()
    failed = trial(build(root, options.find_links), root, options.workers)
    print("the services ended in order" if not failed else f"{failed} services failed")
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
