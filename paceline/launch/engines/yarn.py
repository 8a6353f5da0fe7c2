"""Starts agents by Hadoop's YARN: in containers of its own distributed shell, which every installation of Hadoop has.

The REST of the ResourceManager alone starts no plain command: what it starts has to register as an
ApplicationMaster, and the distributed shell's does. So its client submits the job and stays until it is over; REST
is what finds the job by its name and ends it (`python -m paceline.launch.engines.yarn`), which the client does not
do when it is killed. Containers get no numbers: agents take places as they call. They find the ticket in a folder
that all nodes share.

    GET  RM/ws/v1/cluster/apps?states=...        PUT  RM/ws/v1/cluster/apps/ID/state  {"state": "KILLED"}
"""

from __future__ import annotations

import getpass
import json
import shlex
import sys
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

from paceline.core.errors import ConfigError, PacelineError
from paceline.core.files.helper_command import helper_command
from paceline.core.registry import nearest

NAME = "yarn"
CLIENT = "org.apache.hadoop.yarn.applications.distributedshell.Client"
"""The class of Hadoop that submits the application."""
ALIVE = "NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"
"""States of an application that still holds, or waits for, containers."""
ANSWER_SECONDS = 10.0
EXAMPLE = "--launcher-args 'jar=/opt/hadoop/share/hadoop/yarn/hadoop-yarn-applications-distributedshell-3.3.6.jar'"
"""What an error shows as the way out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Yarn:
    """Describes a job. `jar`: the distributed shell's; `manager`: URL of the ResourceManager; `extra`: options for the
    client."""

    jar: str
    manager: str = "http://localhost:8088"
    job: str = field(default_factory=lambda: f"paceline-{token_hex(4)}")
    path: str = ""
    extra: tuple[str, ...] = ()
    name: str = NAME
    hint: str = "run it where Hadoop's commands are, with HADOOP_CONF_DIR set"

    def command(self, agents: int, agent: Sequence[str]) -> list[str]:
        """Returns the command that starts `agents` containers."""
        flags = ["-jar", self.jar, "-appname", self.job, "-num_containers", str(agents)]
        flags += ["-shell_command", shlex.join(agent)]
        flags += ["-shell_env", f"PYTHONPATH={self.path}"] if self.path else []
        return ["yarn", CLIENT, *flags, *self.extra]

    def cancel(self) -> list[str]:
        """Returns the command that kills the job over REST."""
        return helper_command("paceline.launch.engines.yarn", self.manager, self.job)


def configured(words: Sequence[str], path: str) -> Yarn:
    """Reads --launcher-args: `jar=`, `manager=`, `memory=` in MiB, `cores=`, `queue=`. Raises ConfigError."""
    told: dict[str, str] = {}
    options = {"memory": "-container_memory", "cores": "-container_vcores", "queue": "-queue"}
    known = ("jar", "manager", *options)
    for word in words:
        key, _, value = word.partition("=")
        if key not in known or not value:
            raise ConfigError(f"--launcher-args {word}: write {'=..., '.join(known)}=...{nearest(key, known)}")
        if key in ("memory", "cores") and not value.isdecimal():
            raise ConfigError(f"--launcher-args {word}: a whole number{' of MiB' if key == 'memory' else ''}")
        told[key] = value
    if "jar" not in told:
        raise ConfigError(f"--launcher yarn needs the distributed shell's jar: {EXAMPLE}")
    extra = tuple(word for key, flag in options.items() if key in told for word in (flag, told[key]))
    manager = {"manager": told["manager"].rstrip("/")} if "manager" in told else {}
    return Yarn(jar=told["jar"], path=path, extra=extra, **manager)


# ---- the ResourceManager -------------------------------------------------------------------------------------
def kill(manager: str, job: str) -> list[str]:
    """Kills the applications of that name that have not ended; returns their IDs. Raises PacelineError."""
    there = _ask("GET", f"{manager}/ws/v1/cluster/apps?{urllib.parse.urlencode({'states': ALIVE})}")
    try:
        ids = [str(app["id"]) for app in ((there.get("apps") or {}).get("app") or []) if app["name"] == job]
    except (AttributeError, KeyError, TypeError):
        raise PacelineError(f"{manager} is no ResourceManager: its answer has no applications") from None
    user = urllib.parse.urlencode({"user.name": getpass.getuser()})
    for number in ids:
        _ask("PUT", f"{manager}/ws/v1/cluster/apps/{urllib.parse.quote(number)}/state?{user}", {"state": "KILLED"})
    return ids


def _ask(verb: str, url: str, body: dict[str, str] | None = None) -> dict[str, Any]:
    """Returns the JSON that the ResourceManager answers. Raises PacelineError for anything else."""
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"}, method=verb)
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as answer:
            told = json.loads(answer.read() or b"{}")
    except (OSError, ValueError) as error:
        raise PacelineError(f"the ResourceManager, {verb} {url}: {error}") from None
    if not isinstance(told, dict):
        raise PacelineError(f"{url} is no ResourceManager's: {str(told)[:60]}")
    return told


def main(arguments: Sequence[str]) -> int:
    """Kills a job: arguments are the manager's URL and the job's name; returns the exit code."""
    try:
        kill(*arguments)
    except PacelineError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
