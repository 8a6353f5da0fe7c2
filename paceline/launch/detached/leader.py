"""Starts the command of a run in a session of its own, with its output in the run's folder.

    step                                               then
    start, no terminal, output to console.log          wait for the run to begin
    status.json of that process says it has begun      say how to look at the run, and return
    the process ends before                            show what it printed, and return its exit code
    neither within PATIENCE_SECONDS                    say that it is still starting, and return

A session of its own has no terminal, so closing the one of the caller sends it no SIGHUP. Everything the run starts is
in that session or on other hosts, and ends with the leader as it always does.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from paceline.core.errors import ConfigError
from paceline.core.files.helper_command import helper_command
from paceline.core.files.regular_file import read_regular
from paceline.runtime.run_folder.status_file import STARTING, read_status

CONSOLE = "console.log"
"""What the command would have printed on its terminal, standard output and standard error together."""
PATIENCE_SECONDS = 60.0
LOOK_SECONDS = 0.1
NEXT = {
    "attach": "shows its output from the beginning, and follows it; Ctrl-C leaves it running",
    "status": "shows who takes part, and how far they are",
    "kill": "ends it in order",
}


def start_leader(words: Sequence[str], out: str, say: Callable[[str], None]) -> int:
    """Starts `paceline WORDS` as the leader of the run in the folder `out`, which exists.

    say: is called with each line for the user. Returns 0 once the run has begun, or the exit code of a leader that
    ended before. Raises ConfigError where the folder takes no file.
    """
    console = Path(out) / CONSOLE
    command = helper_command("paceline", *words)
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}  # what it prints is in the file at once
    try:
        with console.open("ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
    except OSError as error:
        raise ConfigError(f"--detach: {console}: {error.strerror}") from None
    say(f"{out}: starting ...")
    limit = time.monotonic() + PATIENCE_SECONDS
    while process.poll() is None and not has_begun(out, process.pid) and time.monotonic() < limit:
        threading.Event().wait(LOOK_SECONDS)
    if process.returncode is not None:
        return _ended(process.returncode, console, say)
    state = "goes on" if has_begun(out, process.pid) else "is still starting, and goes on"
    say(f"{out} {state} without this terminal; pid {process.pid} leads it")
    for verb, what in NEXT.items():
        say(f"  {f'paceline {verb} {out}':<{len(out) + 17}}  {what}")
    return 0


def has_begun(out: str, pid: int) -> bool:
    """Returns True if the process with this PID leads the run in `out`, and the run has begun."""
    try:
        status = read_status(out)
    except ConfigError:  # there is none yet
        return False
    return status.pid == pid and status.state != STARTING


def _ended(code: int, console: Path, say: Callable[[str], None]) -> int:
    """Shows what the leader printed before it ended. A folder that holds nothing else is removed."""
    for line in read_regular(console).decode(errors="replace").splitlines():
        say(line)
    if code != 0 and list(console.parent.iterdir()) == [console]:
        with contextlib.suppress(OSError):
            console.unlink()
            console.parent.rmdir()
    return code if code >= 0 else 128 - code
