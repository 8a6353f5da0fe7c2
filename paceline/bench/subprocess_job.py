"""The other processes of a measurement: each does one job, and talks with its parent in
`paceline.launch.local.line_messages`.

`python -m paceline.bench.subprocess_job MODULE.FUNCTION JOB` calls that function of this package. Parent and child take
turns: a child tells something, hears something, and so on, until its input ends.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import subprocess
import sys
from pathlib import Path
from typing import Any, BinaryIO

from paceline.core.errors import PacelineError, PeerLost, TimedOut
from paceline.launch.local.line_messages import LaunchMessage, LineDecoder, encode

PATIENCE_S = 120.0
"""Seconds to wait for a message of a child."""
ROOT = Path(__file__).resolve().parents[2]
"""The folder of the package, for the child's PYTHONPATH: it may not be installed."""


class Told(LaunchMessage, frozen=True, kw_only=True, tag="told"):
    """Carries a value of the job from one side to the other."""

    value: Any


class JobFailed(LaunchMessage, frozen=True, kw_only=True, tag="failed"):
    """Says in one line why the child gives up; the parent raises it as PacelineError."""

    why: str


class ParentStream:
    """Is the child's end of the two pipes to its parent."""

    def __init__(self, lines: BinaryIO, out: BinaryIO) -> None:
        self._lines, self._out = lines, out
        self._decoder: LineDecoder[Told] = LineDecoder(Told)

    def tell(self, what: Any) -> None:
        """Sends a value, of JSON, to the parent."""
        self._say(Told(value=what))

    def fail(self, why: str) -> None:
        """Sends the reason of a failure; nothing may follow it."""
        self._say(JobFailed(why=why))

    def _say(self, message: LaunchMessage) -> None:
        self._out.write(encode(message))
        self._out.flush()

    def hear(self) -> Any:
        """Returns the parent's next value. Raises EOFError when it wants nothing more, or is gone."""
        line = self._lines.readline()
        if not line:
            raise EOFError
        self._decoder.feed(line)
        return self._decoder.take().value


class Child:
    """Starts one child process and holds the pipes to it. Errors of `hear` and `tell` name `role`."""

    def __init__(self, role: str, job: dict[str, Any]) -> None:
        """role: MODULE.FUNCTION of this package, which is called with `job` and a ParentStream."""
        self._role = role
        self._decoder: LineDecoder[Told | JobFailed] = LineDecoder(Told | JobFailed)
        path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "paceline.bench.subprocess_job", role, json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,  # Ctrl-C is for the parent, which ends its children
        )

    def tell(self, what: Any) -> None:
        """Sends a value, of JSON, to the child. Raises PeerLost when it has ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(encode(Told(value=what)))
            self._process.stdin.flush()
        except OSError:
            raise self._ended() from None

    def hear(self, patience_s: float = PATIENCE_S) -> Any:
        """Returns the child's next value.

        Raises PeerLost when the child has ended, TimedOut after `patience_s`, and PacelineError if the child has
        failed.
        """
        out = self._process.stdout
        assert out is not None
        while not self._decoder.has_message:
            if not select.select([out], [], [], patience_s)[0]:
                raise TimedOut(f"waited {patience_s:.0f} s for {self._role}, which is being measured")
            data = os.read(out.fileno(), 1 << 16)
            if not data:
                raise self._ended()
            self._decoder.feed(data)
        said = self._decoder.take()
        if isinstance(said, JobFailed):
            raise PacelineError(said.why)
        return said.value

    def end(self) -> None:
        """Kills the process and frees its pipes."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.kill()
        self._process.wait()

    def _ended(self) -> PeerLost:
        return PeerLost(f"{self._role}, which was being measured, ended with code {self._process.wait()}")


class Children:
    """Starts children in a context and ends them at its end, the last first."""

    def __init__(self) -> None:
        self._all: list[Child] = []

    def start(self, role: str, job: dict[str, Any]) -> Child:
        """Starts a child; see `Child`."""
        self._all.append(Child(role, job))
        return self._all[-1]

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        while self._all:
            self._all.pop().end()


def main(role: str, job: str) -> None:
    """Does the job of one child process; it never returns.

    The process ends by `os._exit`, with whatever threads it has: a transport's thread would otherwise keep it alive.
    """
    stream = ParentStream(sys.stdin.buffer, os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)  # what is printed by others must not come between
    module, _, function = role.partition(".")
    code = 0
    try:
        gc.disable()  # what is imported stays, and looking through it again and again takes half a second
        work = getattr(importlib.import_module(f"paceline.bench.{module}"), function)
        gc.freeze()
        gc.enable()
        work(json.loads(job), stream)
    except (EOFError, BrokenPipeError):
        pass
    except PacelineError as error:
        stream.fail(str(error))
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
