"""`paceline launch` on a host of the lab."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from tests.lab.lab import Lab
from tests.launch.process_tree import within

ROOT = str(Path(__file__).parents[2])


def path() -> str:
    return os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)


class Launched:
    """`paceline launch` on h1, and what it says."""

    def __init__(self, lab: Lab, *words: str, verb: str = "launch", **environment: str) -> None:
        command = [sys.executable, "-m", "paceline", verb, "--env", "PYTHONPATH", *words]
        self.process = subprocess.Popen(
            lab.command("h1", *command),
            cwd=lab.folder,
            env={**os.environ, "PYTHONPATH": path(), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.said = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said += line

    def says(self, text: str, seconds: float) -> bool:
        return within(seconds, lambda: text in self.said or self.process.poll() is not None) and text in self.said

    def ends(self, seconds: float) -> int:
        code = self.process.wait(seconds)
        self._reader.join(5)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code
