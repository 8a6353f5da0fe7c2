"""Import paths: what they name is found as Python finds it for a script, and every mistake is one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from paceline.core.errors import ConfigError
from paceline.engine import import_path

CODE = """
import beside_{n}
from dataclasses import dataclass

@dataclass
class Made:
    number: int = beside_{n}.NUMBER

def make(): return Made()
def wide(width, *, depth=2): return width
def fails(): raise ValueError("two\\nlines")
THREE = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """The working directory, with a file that imports its neighbour; names are those of one test alone."""
    n = abs(hash(request.node.nodeid)) % 10**8
    (tmp_path / f"beside_{n}.py").write_text("NUMBER = 7\n")
    (tmp_path / f"mine_{n}.py").write_text(CODE.format(n=n))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def mine(folder: Path) -> str:
    return next(file.stem for file in folder.glob("mine_*.py"))


def test_paths_are_known_by_their_form() -> None:
    for path in ("a:b", "a.b.c:D", "a.py:b", "../x/a b.py:b"):
        assert import_path.is_path(path), path
    for name in ("mlp", "fashion-mnist", "a:", ":b", "a.py", "a b:c", "a:b.c", "1a:b"):
        assert not import_path.is_path(name), name


def test_a_module_is_found_in_the_working_directory(folder: Path) -> None:
    made = import_path.own(f"{mine(folder)}:make", "--model", makes="models")
    assert import_path.call(made, "x:make", "--model").number == 7


def test_a_file_is_executed_once_and_finds_its_neighbours(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    path = f"{folder}/{mine(folder)}.py"
    assert import_path.own(f"{path}:Made", "--model", makes="models")().number == 7
    assert import_path.own(f"{path}:Made", "--model", makes="models") is import_path.own(
        f"{path}:Made", "--model", makes="models"
    )


def test_a_file_with_the_name_of_a_module_takes_nobodys_place(folder: Path) -> None:
    Path("json.py").write_text("def make(): return 1\n")
    json = sys.modules["json"]
    assert import_path.own("json.py:make", "--model", makes="models")() == 1
    assert sys.modules["json"] is json


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("no_such:make", "cannot be imported: No module named 'no_such'; name its file, such as"),
        ("no_such.py:make", r"no file no_such.py in /.*; give its path from there"),
        ("os:system", "os is part of Python, and makes no models"),
        ("MINE:mkae", "has no function mkae; did you mean 'make'?"),
        ("MINE.py:zzzzz", "has no function zzzzz; there are: "),
        ("MINE:THREE", "THREE is a int, not a function or a class"),
        ("broken.py:make", r"ZeroDivisionError: division by zero \(broken.py, line 2\)"),
        ("exits.py:make", 'SystemExit: 2 .*; put what trains under `if __name__ == "__main__":`'),
        ("opens.py:make", r"FileNotFoundError: .*nowhere.* \(opens.py, line 1\)"),
    ],
)
def test_a_mistake_is_one_line_with_the_way_out(folder: Path, path: str, words: str) -> None:
    Path("broken.py").write_text("\n1 / 0\n")
    Path("exits.py").write_text("import sys\nsys.exit(2)\n")
    Path("opens.py").write_text("open('/nowhere/at/all')\n")
    with pytest.raises(ConfigError, match=words) as raised:
        import_path.own(path.replace("MINE", mine(folder)), "--model", makes="models")
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith("--model ")


def test_a_function_that_needs_arguments_is_refused_with_their_names(folder: Path) -> None:
    wide = import_path.own(f"{mine(folder)}:wide", "--model", makes="models")
    with pytest.raises(ConfigError, match=r"wide needs arguments \(width\), and is called without any: name a"):
        import_path.call(wide, "m:wide", "--model")


def test_what_the_users_function_raises_is_one_line_with_its_place(folder: Path) -> None:
    fails = import_path.own(f"{mine(folder)}.py:fails", "--data", makes="data")
    with pytest.raises(ConfigError, match=r"--data m:fails: ValueError: two lines \(mine_.*py, line 11\)"):
        import_path.call(fails, "m:fails", "--data")


def test_no_torch_is_needed_to_check_a_path() -> None:
    check = "import sys, paceline.engine.import_path; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
