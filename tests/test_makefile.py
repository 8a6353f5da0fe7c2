"""`make` in a folder that was copied with its environment works with the copy alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = re.compile(r"(?:\$\(BIN\)|\bbin)/(?!python3?\b)(pip\d?|ruff|mypy|pytest|paceline|cyclonedx-py)\b")
"""A script of an environment: its first line names the interpreter of the folder in which it was installed."""
PIP = re.compile(r"bin/pip\d?\b|\(BIN\)/pip")


def tracked(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*")) if path.is_file()]


def test_make_and_ci_run_the_interpreter_and_no_script_of_an_environment() -> None:
    for path in (ROOT / "Makefile", *tracked(".ci", "containers")):
        assert SCRIPT.findall(path.read_text()) == [], path


def test_pip_is_always_a_module_of_the_interpreter() -> None:
    files = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "ARCHITECTURE.md")]
    files += [path for path in tracked("docs", "scripts", "benchmarks", "examples") if path.suffix in (".md", ".py")]
    assert [str(path) for path in files if PIP.search(path.read_text())] == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with what `make` looks at, and an environment that finds the package in it."""
    if not shutil.which("make"):
        pytest.skip("make is not installed")
    made = tmp_path / "original"
    (made / "paceline").mkdir(parents=True)
    (made / "paceline" / "__init__.py").touch()
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, made / name)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(made / ".venv")], check=True)
    (packages,) = (made / ".venv" / "lib").glob("python*/site-packages")
    (packages / "editable.pth").write_text(f"{made}\n")
    (made / ".venv" / ".ready").touch()
    return made


def commands(folder: Path) -> str:
    """As a user's shell runs it: these tests themselves may run under a `make`, which tells its children so."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(
        ["make", "-n", "lint"], cwd=folder, env=env, check=True, capture_output=True, text=True
    ).stdout


def test_an_environment_that_is_ready_is_left_as_it_is(folder: Path) -> None:
    assert commands(folder).splitlines() == [".venv/bin/python -m ruff check ."]


def test_in_a_copied_folder_the_package_is_installed_from_the_copy(folder: Path) -> None:
    copy = folder.parent / "copy"
    shutil.copytree(folder, copy, symlinks=True)
    assert ".venv/bin/python -m pip install --quiet --editable" in commands(copy)
    assert commands(folder).splitlines() == [".venv/bin/python -m ruff check ."]
