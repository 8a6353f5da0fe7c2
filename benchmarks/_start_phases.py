"""Runs one `paceline` command and writes when each phase of its start and end was over; `quick_start.py` calls it.

python benchmarks/_start_phases.py FILE SECONDS WORDS...

SECONDS is the moment on the monotonic clock at which the caller started this process; FILE becomes JSON, seconds since
then by the name of the moment. Nothing of the package is imported before the command itself would import it.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

MOMENTS: dict[str, float] = {}


def mark(moment: str, began: float) -> None:
    """Notes that a moment is there; the last time counts."""
    MOMENTS[moment] = time.monotonic() - began


def marked(owner: type, method: str, moment: str, began: float) -> None:
    """Notes `moment` whenever that method of `owner` has returned."""
    function: Callable[..., Any] = getattr(owner, method)

    @functools.wraps(function)
    def wrapper(*arguments: Any, **options: Any) -> Any:
        """Calls the method, then notes the moment."""
        result = function(*arguments, **options)
        mark(moment, began)
        return result

    setattr(owner, method, wrapper)


def main() -> int:
    file, began, words = Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]
    mark("python", began)
    popen = subprocess.Popen.__init__

    def first_process(self: Any, *arguments: Any, **options: Any) -> None:
        """Starts the fork server, the first process of a run, and has the moments after it noted."""
        subprocess.Popen.__init__ = popen  # type: ignore[method-assign]
        popen(self, *arguments, **options)
        mark("fork server started", began)
        from paceline.launch.local.launcher import LocalLauncher
        from paceline.runtime.supervisor.artifacts import RunArtifacts
        from paceline.runtime.supervisor.supervisor import RunSupervisor

        marked(LocalLauncher, "prepare", "data loaded", began)
        marked(RunArtifacts, "joined", "all joined", began)
        marked(RunArtifacts, "started", "training begins", began)
        marked(RunArtifacts, "finished", "run over", began)
        marked(LocalLauncher, "end", "processes ended", began)
        marked(RunSupervisor, "run", "files written", began)

    subprocess.Popen.__init__ = first_process  # type: ignore[assignment, method-assign]
    from paceline.cli.main import main as command

    sys.argv = ["paceline", *words]
    code = command()
    mark("command done", began)
    file.write_text(json.dumps(MOMENTS))
    return code


if __name__ == "__main__":
    sys.exit(main())
