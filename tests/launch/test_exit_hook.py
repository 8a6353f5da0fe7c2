"""With which code a script ends is known while it ends."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from paceline.core.errors import CoordinatorVersion
from paceline.launch.exit_hook import exit_if_too_late
from paceline.runtime.spec.launcher import OTHER_VERSION_EXIT

BEGIN = """
import argparse, atexit, sys
from paceline.launch.exit_hook import ScriptExit
end = ScriptExit()
atexit.register(lambda: print(end.code))
def main(code): return code
def fail(): raise SystemExit(5)
"""
CODES = [
    ("", 0),
    ("sys.exit()", 0),
    ("sys.exit(3)", 3),
    ("sys.exit(main(3))", 3),
    ("sys.exit('a reason')", 1),
    ("raise SystemExit", 0),
    ("try: sys.exit(3)\nexcept SystemExit: pass", 0),
    ("try: sys.exit(3)\nexcept SystemExit: sys.exit(4)", 4),
    ("import threading\nthread = threading.Thread(target=sys.exit, args=(3,))\nthread.start(); thread.join()", 0),
    ("1 / 0", 1),
    ("argparse.ArgumentParser().parse_args(['--unknown'])", 2),
]
RAISED = [
    ("raise SystemExit(main(3))", 3),
    ("raise SystemExit(main(0))", 0),
    ("raise SystemExit('a reason')", 1),
    ("fail()", 5),
    ("try: sys.exit(3)\nexcept SystemExit: raise SystemExit(4)", 4),
]


def ended(python: str, lines: str) -> tuple[str, int]:
    """The code that was told while it ended, and the one that was its own."""
    process = subprocess.run([python, "-c", BEGIN + lines], capture_output=True, text=True, timeout=60)
    return process.stdout, process.returncode


@pytest.mark.parametrize(("lines", "code"), CODES)
def test_the_code_is_that_of_the_process(lines: str, code: int) -> None:
    assert ended(sys.executable, lines) == (f"{code}\n", code)


@pytest.mark.parametrize("python", ["python3.12", "python3.13", "python3.14"])
def test_from_3_12_on_it_is_so_whoever_raises_system_exit(python: str) -> None:
    """In any of them that is here; the module needs nothing but the standard library."""
    if shutil.which(python) is None or ended(python, "")[1]:
        pytest.skip(f"no {python} here")
    told = {lines: ended(python, lines) for lines, _ in (*CODES, *RAISED)}
    assert told == {lines: (f"{code}\n", code) for lines, code in (*CODES, *RAISED)}


def test_a_script_of_another_version_than_its_run_ends_with_a_code_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended, exit_if_too_late("worker 1"):
        raise CoordinatorVersion("worker 1 cannot reach coordinator: another version")
    assert ended.value.code == OTHER_VERSION_EXIT
    assert capsys.readouterr().err == "paceline: worker 1 cannot reach coordinator: another version\n"
