"""With which code a script ends is known while it ends."""

from __future__ import annotations

import subprocess
import sys

import pytest

BEGIN = """
import argparse, atexit, sys
from paceline.launch.exits import Exit
end = Exit()
atexit.register(lambda: print(end.code))
def main(code): return code
"""


@pytest.mark.parametrize(
    ("lines", "code"),
    [
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
    ],
)
def test_the_code_is_that_of_the_process(lines: str, code: int) -> None:
    ended = subprocess.run([sys.executable, "-c", BEGIN + lines], capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.returncode) == (f"{code}\n", code), ended.stderr
