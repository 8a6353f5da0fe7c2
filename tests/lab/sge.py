"""A Grid Engine of one's own over the hosts of a lab: the master on h1, an execution daemon on each."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.lab.lab import INSTALL, Lab
from tests.launch.process_tree import within

SHARED, PROGRAMS = Path("/usr/share/gridengine"), Path("/usr/lib/gridengine")
VERSION = (str(PROGRAMS / "sge_shepherd"), "-help")
"""The commands, such as qstat, tell theirs only where a master is configured."""
DAEMONS = ("sge_qmaster", "sge_execd", "sge_shepherd")
BOOTSTRAP = """admin_user none
default_domain none
ignore_fqdn false
spooling_method berkeleydb
spooling_lib libspoolb
spooling_params {folder}/spool/db
binary_path /usr/sbin
qmaster_spool_dir {folder}/spool/qmaster
security_mode none
listener_threads 2
worker_threads 2
scheduler_threads 1
"""


def missing() -> str:
    """Why there can be no Grid Engine here; empty when there can."""
    absent = [name for name in DAEMONS if not (PROGRAMS / name).exists()]
    return f"no {', '.join(absent)}; {INSTALL}" if absent else ""


@contextmanager
def running(lab: Lab) -> Iterator[dict[str, str]]:
    """The environment in which its commands find it."""
    folder = lab.folder / "sge"
    for name in ("default/common", "spool/db", "spool/qmaster", "spool/execd"):
        (folder / name).mkdir(parents=True)
    (folder / "util").symlink_to(SHARED / "util")
    (folder / "default/common/bootstrap").write_text(BOOTSTRAP.format(folder=folder))
    (folder / "default/common/act_qmaster").write_text("h1\n")
    found = {"SGE_ROOT": str(folder), "SGE_CELL": "default", "SGE_QMASTER_PORT": "26444", "SGE_EXECD_PORT": "26445"}
    master = _Master(lab, found)
    master.fill(folder)
    daemons = [master.start("h1", "sge_qmaster")]
    try:
        assert within(20, lambda: master.run("qconf", "-sconf", check=False).returncode == 0)
        master.make_queue(folder)
        daemons += [master.start(name, "sge_execd") for name in lab.names]
        yield found
    finally:
        for daemon in daemons:
            daemon.wait(10)  # they detach; the lab's end is theirs


class _Master:
    """Commands on h1 that find this Grid Engine."""

    def __init__(self, lab: Lab, environment: dict[str, str]) -> None:
        self._lab, self._words = lab, ["env", *(f"{name}={value}" for name, value in environment.items())]

    def run(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self._lab.command("h1", *self._words, *words), capture_output=True, text=True, check=False, timeout=60
        )
        assert not check or done.returncode == 0, f"{' '.join(words)}: {done.stdout}{done.stderr}"
        return done

    def start(self, host: str, daemon: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._lab.command(host, *self._words, str(PROGRAMS / daemon)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def fill(self, folder: Path) -> None:
        """The master's memory before its first start; root's jobs are allowed."""
        settings = (SHARED / "default-configuration").read_text()
        for key, value in {"min_uid": "0", "min_gid": "0", "execd_spool_dir": f"{folder}/spool/execd"}.items():
            settings = re.sub(rf"(?m)^{key}\s.*$", f"{key} {value}", settings)
        (folder / "configuration").write_text(settings)
        self.run(str(PROGRAMS / "spoolinit"), "berkeleydb", "libspoolb", f"{folder}/spool/db", "init")
        resources = SHARED / "util/resources"
        for what, of in (
            ("configuration", str(folder / "configuration")),
            ("complexes", str(resources / "centry")),
            ("usersets", str(resources / "usersets")),
            ("managers", "root"),
        ):
            self.run(str(PROGRAMS / "spooldefaults"), what, of)

    def make_queue(self, folder: Path) -> None:
        names = " ".join(self._lab.names)
        schedule = self.run("qconf", "-ssconf").stdout
        for key, value in {"schedule_interval": "0:0:1", "flush_submit_sec": "1", "flush_finish_sec": "1"}.items():
            schedule = re.sub(rf"(?m)^{key}\s.*$", f"{key} {value}", schedule)
        (folder / "schedule").write_text(schedule)
        self.run("qconf", "-Msconf", str(folder / "schedule"))
        for name in self._lab.names:
            self.run("qconf", "-ah", name, check=False)
        self.run("qconf", "-as", "h1")
        (folder / "group").write_text(f"group_name @allhosts\nhostlist {names}\n")
        self.run("qconf", "-Ahgrp", str(folder / "group"))
        (folder / "queue").write_text(_QUEUE)
        self.run("qconf", "-Aq", str(folder / "queue"))


_QUEUE = (
    "\n".join(
        f"{key} {value}"
        for key, value in {
            "qname": "all.q",
            "hostlist": "@allhosts",
            "seq_no": "0",
            "load_thresholds": "NONE",
            "suspend_thresholds": "NONE",
            "nsuspend": "1",
            "suspend_interval": "00:05:00",
            "priority": "0",
            "min_cpu_interval": "00:05:00",
            "processors": "UNDEFINED",
            "qtype": "BATCH INTERACTIVE",
            "ckpt_list": "NONE",
            "pe_list": "NONE",
            "rerun": "FALSE",
            "slots": "1",
            "tmpdir": "/tmp",
            "shell": "/bin/sh",
            "prolog": "NONE",
            "epilog": "NONE",
            "shell_start_mode": "posix_compliant",
            **dict.fromkeys(["starter_method", "suspend_method", "resume_method", "terminate_method"], "NONE"),
            "notify": "00:00:05",
            **dict.fromkeys(["owner_list", "user_lists", "xuser_lists", "subordinate_list", "complex_values"], "NONE"),
            **dict.fromkeys(["projects", "xprojects", "calendar"], "NONE"),
            "initial_state": "default",
            **{
                f"{kind}_{what}": "INFINITY"
                for what in ("rt", "cpu", "fsize", "data", "stack", "core", "rss", "vmem")
                for kind in "sh"
            },
        }.items()
    )
    + "\n"
)
