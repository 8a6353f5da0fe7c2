"""A Slurm of one's own over the hosts of a lab: the controller on h1, a node on each."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.lab.lab import INSTALL, Lab
from tests.launch.process_tree import within

DAEMONS = {"munged": "/usr/sbin/munged", "slurmctld": "/usr/sbin/slurmctld", "slurmd": "/usr/sbin/slurmd"}

CONFIGURATION = """ClusterName=lab
SlurmctldHost=h1({controller})
SlurmctldPort=26817
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,bf_interval=1
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=15
KillWait=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdParameters=config_overrides
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""


def missing() -> str:
    """Why there can be no Slurm here; empty when there can."""
    absent = [name for name, path in DAEMONS.items() if not Path(path).exists()]
    absent += [name for name in ("srun", "sinfo") if shutil.which(name) is None]
    return f"no {', '.join(absent)}; {INSTALL}" if absent else ""


@contextmanager
def running(lab: Lab) -> Iterator[dict[str, str]]:
    """The environment in which Slurm's commands find it. The lab's end is its end."""
    folder = lab.folder / "slurm"
    for name in ("state", "spool"):
        (folder / name).mkdir(parents=True)
    nodes = (f"NodeName={name} NodeAddr={lab.address(name)} CPUs=4 RealMemory=4000 State=UNKNOWN" for name in lab.names)
    settings = folder / "slurm.conf"
    settings.write_text(CONFIGURATION.format(controller=lab.address("h1"), folder=folder, nodes="\n".join(nodes)))
    (folder / "cgroup.conf").write_text("CgroupAutomount=no\n")
    environment = {"SLURM_CONF": str(settings)}
    key = folder / "munge.key"
    key.write_bytes(bytes(range(256)) * 4)
    key.chmod(0o400)
    munge = [DAEMONS["munged"], "-F", "--force", "--num-threads=2", f"--socket={folder}/munge.socket"]
    munge += [f"--key-file={key}", f"--pid-file={folder}/munge.pid", f"--log-file={folder}/munge.log"]
    munge += [f"--seed-file={folder}/munge.seed", "--origin=127.0.0.1"]
    started = [_start(lab, "h1", munge, environment)]
    assert within(60, lambda: (folder / "munge.socket").exists()), (folder / "munge.log").read_text()
    try:
        started.append(_start(lab, "h1", [DAEMONS["slurmctld"], "-D", "-c"], environment))
        started += [_start(lab, name, [DAEMONS["slurmd"], "-D", "-N", name], environment) for name in lab.names]
        idle = lab.command("h1", "env", f"SLURM_CONF={settings}", "sinfo", "-h", "-t", "idle", "-o", "%D")
        assert within(60, lambda: _said(idle) == str(len(lab.names))), (folder / "slurmctld.log").read_text()
        yield environment
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(60)


def _start(lab: Lab, host: str, command: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    words = [f"{name}={value}" for name, value in environment.items()]
    return subprocess.Popen(
        lab.command(host, "env", *words, *command),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _said(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
