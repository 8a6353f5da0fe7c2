"""Several hosts on one machine: network namespaces on a bridge, each with an address, a name and an sshd of its own.

    hub  (bridge)  --- h1 10.77.0.1     Nothing touches the network of the machine itself: the bridge lies in a
                   --- h2 10.77.0.2     namespace too, and what runs in a host is found and ended by namespace.
                   --- h3 10.77.0.3

A host can be slow (CPU quota by cgroup v1), be behind a slow link (tbf, both ways), lose its link, and die.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.launch.process_tree import alive, within

PROGRAMS = ("ip", "tc", "nsenter", "unshare", "ssh", "ssh-keygen", "rsync")
SSHD = "/usr/sbin/sshd"
CPU = Path("/sys/fs/cgroup/cpu")
PERIOD_US = 100_000
INSTALL = "`make lab-test` installs what is missing"

SERVER = """Port 22
ListenAddress {address}
HostKey {folder}/hostkey
PidFile none
AuthorizedKeysFile {folder}/key.pub
PasswordAuthentication no
PermitRootLogin prohibit-password
UsePAM no
StrictModes no
MaxStartups 100:30:200
UseDNS no
"""
CLIENT = """Host {name}
  HostName {address}
  User root
  IdentityFile {folder}/key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking yes
"""


def missing() -> str:
    """Why there can be no lab here; empty when there can."""
    if os.name != "posix" or not Path("/proc/self/ns/net").exists():
        return "network namespaces are Linux's"
    if os.geteuid() != 0:
        return "making network namespaces takes root"
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    absent += [] if Path(SSHD).exists() else ["sshd"]
    if absent:
        return f"no {', '.join(absent)}; {INSTALL}"
    name = f"pl{os.getpid()}probe"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"no network namespaces: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return ""


def not_asked() -> str:
    """Why tests that take minutes are left out; empty where they are asked for."""
    return "" if os.environ.get("LAB") == "all" else "takes a minute or two: `make lab-test` runs it"


class Lab:
    """Hosts h1, h2, ...; `close` ends all that runs in them."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.names = folder, [f"h{i}" for i in range(1, count + 1)]
        self._mark = f"pl{os.getpid()}"
        self._sshds: list[subprocess.Popen[bytes]] = []
        self._groups: dict[str, Path] = {}

    def open(self) -> None:
        for key in ("key", "hostkey"):
            _do("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / key))
        Path("/run/sshd").mkdir(exist_ok=True)
        hub = self.space("hub")
        _do("ip", "netns", "add", hub)
        for words in ("link set lo up", "link add br0 type bridge stp_state 0 forward_delay 0", "link set br0 up"):
            _do("ip", "-n", hub, *words.split())
        known, client = "", ""
        for name in self.names:
            self._add(name)
            address = self.address(name)
            known += f"{address} {(self.folder / 'hostkey.pub').read_text()}"
            client += CLIENT.format(name=name, address=address, folder=self.folder)
        names = "".join(f"{self.address(name)} {name}\n" for name in self.names)
        (self.folder / "names").write_text(f"127.0.0.1 localhost\n{names}")
        (self.folder / "known_hosts").write_text(known)
        (self.folder / "ssh_config").write_text(client)
        for name in self.names:
            self._start_sshd(name)

    def _add(self, name: str) -> None:
        hub, space = self.space("hub"), self.space(name)
        _do("ip", "netns", "add", space)
        _do("ip", "-n", hub, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", space)
        _do("ip", "-n", hub, "link", "set", name, "master", "br0", "up")
        _do("ip", "-n", space, "link", "set", "lo", "up")
        _do("ip", "-n", space, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
        _do("ip", "-n", space, "link", "set", "eth0", "up")

    def _start_sshd(self, name: str) -> None:
        settings = self.folder / f"sshd_{name}"
        settings.write_text(SERVER.format(address=self.address(name), folder=self.folder))
        command = self.command(name, SSHD, "-D", "-e", "-f", str(settings))
        log = (self.folder / f"sshd_{name}.log").open("wb")
        with log:
            self._sshds.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        probe = ["ssh", "-F", str(self.folder / "ssh_config"), "-o", "BatchMode=yes", name, "true"]
        login = self.command(name, *probe)
        assert within(60, lambda: subprocess.run(login, capture_output=True, check=False).returncode == 0), (
            self.folder / f"sshd_{name}.log"
        ).read_text()

    # ---- hosts -------------------------------------------------------------------------------------------
    def space(self, name: str) -> str:
        return f"{self._mark}{name}"

    def address(self, name: str) -> str:
        return f"10.77.0.{name[1:]}"

    def command(self, name: str, *words: str) -> list[str]:
        """`words` as they are run on that host, under its name, where the others' names are known."""
        inside = f'mount --bind {self.folder}/names /etc/hosts && hostname "$0" && exec "$@"'
        space = [f"--net=/run/netns/{self.space(name)}", "unshare", "--uts", "--mount"]
        return ["nsenter", *space, "sh", "-c", inside, name, *words]

    def pids(self, name: str) -> list[int]:
        found = subprocess.run(["ip", "netns", "pids", self.space(name)], capture_output=True, text=True, check=False)
        return [int(pid) for pid in found.stdout.split()]

    def running(self, name: str) -> list[str]:
        """What runs there besides its sshd: command lines."""
        lines = []
        for pid in self.pids(name):
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                if line and SSHD not in line and not line.startswith("sshd"):
                    lines.append(line)
        return lines

    def slow(self, name: str, share: float) -> None:
        """Let it have so much of one CPU; those it starts from now on, too."""
        group = CPU / self.space(name)
        group.mkdir()
        self._groups[name] = group
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(round(share * PERIOD_US)))
        for pid in self.pids(name):
            (group / "cgroup.procs").write_text(str(pid))

    def throttle(self, name: str, rate: str) -> None:
        """Its link, both ways; `rate` as tc has it, such as 50mbit."""
        shape = ("root", "tbf", "rate", rate, "burst", "256kb", "latency", "50ms")
        _do("tc", "-n", self.space(name), "qdisc", "add", "dev", "eth0", *shape)
        _do("tc", "-n", self.space("hub"), "qdisc", "add", "dev", name, *shape)

    def cut(self, name: str) -> None:
        """Its link: whoever talks to it hears nothing at all."""
        _do("ip", "-n", self.space("hub"), "link", "set", name, "down")

    def die(self, name: str) -> None:
        """As by a power failure: no good-bye reaches anybody."""
        self.cut(name)
        for pid in self.pids(name):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        for name in [*self.names, "hub"]:
            for pid in self.pids(name):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            subprocess.run(["ip", "netns", "del", self.space(name)], capture_output=True, check=False)
        for process in self._sshds:
            process.wait(60)
        for group in self._groups.values():
            assert within(30, lambda group=group: _removed(group)), group  # type: ignore[misc]


def _removed(group: Path) -> bool:
    """The kernel keeps it while a process in it is on its way out."""
    try:
        group.rmdir()
    except OSError:
        return False
    return True


def _do(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr.strip()}"


def sweep() -> None:
    """End what is left of labs whose tests were killed: each bears the number of its process."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False).stdout
    for space in re.findall(r"^pl\d+(?:h\d+|hub)\b", listed, re.MULTILINE):
        if not alive(int(re.findall(r"\d+", space)[0])):
            lab = Lab(Path(), 0)
            lab._mark, lab.names = space, [""]
            lab._groups = {"": CPU / space} if (CPU / space).exists() else {}
            lab.close()


def opened(folder: Path, count: int) -> Iterator[Lab]:
    sweep()
    lab = Lab(folder, count)
    try:
        lab.open()
        yield lab
    finally:
        lab.close()
