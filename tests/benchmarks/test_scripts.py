"""Public scripts are converted by short diffs, and only those lie in the project."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "scripts"


@pytest.fixture(scope="module")
def sources() -> ModuleType:
    spec = importlib.util.spec_from_file_location("sources", FOLDER / "sources.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_script_has_a_diff_of_few_lines_and_each_diff_a_script(sources: ModuleType) -> None:
    diffs = {path.stem: sources.changed_lines(path.read_text()) for path in FOLDER.glob("*.diff")}
    assert diffs.keys() == sources.catalogue().keys()
    assert min(diffs.values()) > 0
    assert max(diffs.values()) <= 12
    assert sources.changed_lines("--- a\n+++ b\n-x\n-y\n+z\n") == 2


def a_clone(folder: Path, text: str) -> dict[str, Any]:
    """A repository with one script."""
    home = folder / "somebody" / "theirs"
    home.mkdir(parents=True)
    (home / "train.py").write_text(text)
    git = ["git", "-C", str(home), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *command], check=True, capture_output=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    return {"repository": "somebody/theirs", "commit": commit, "entry": "train.py", "files": []}


def test_a_script_is_kept_as_it_is_and_converted(
    sources: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = a_clone(tmp_path / "clones", "print('theirs')\n")
    (tmp_path / "one.diff").write_text(
        "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-print('theirs')\n+print('ours')\n"
    )
    monkeypatch.setattr(sources, "HERE", tmp_path)
    home = sources.fetch("one", of, tmp_path / "clones", tmp_path / "out")
    assert (home / "alone" / "train.py").read_text() == "print('theirs')\n"
    ran = subprocess.run([sys.executable, home / "shared" / "train.py"], capture_output=True, text=True, check=True)
    assert ran.stdout == "ours\n"


def test_too_long_a_diff_or_no_clone_is_said_in_a_line(
    sources: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = a_clone(tmp_path / "clones", "x\n" * 20)
    monkeypatch.setattr(sources, "HERE", tmp_path)
    (tmp_path / "one.diff").write_text("--- a/train.py\n+++ b/train.py\n" + "-x\n" * 13)
    with pytest.raises(SystemExit, match="changes more than 12 lines"):
        sources.fetch("one", of, tmp_path / "clones", tmp_path / "out")
    with pytest.raises(SystemExit, match="no clone of somebody/theirs in .*: leave --from out"):
        sources.clone_of("somebody/theirs", tmp_path / "nowhere", tmp_path)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(FOLDER))
    spec = importlib.util.spec_from_file_location("scripts_run", FOLDER / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_variant_has_keys_of_its_own_and_replaces_more(run: ModuleType) -> None:
    of = {"alone": ["--a"], "shared": ["--b"], "replace": [["x", "y"]]}
    of["variants"] = {"late": {"alone": ["--c"], "replace": [["u", "v"]]}}
    late = run.varied("one", of, "late")
    assert late["alone"] == ["--c"]
    assert late["shared"] == ["--b"]
    assert late["replace"] == [["x", "y"], ["u", "v"]]
    with pytest.raises(SystemExit, match="one has no variant 'lat' .it has: late."):
        run.varied("one", of, "lat")


def test_variants_have_keys_that_the_benchmark_reads(sources: ModuleType) -> None:
    variants = [variant for of in sources.catalogue().values() for variant in of.get("variants", {}).values()]
    assert len(variants) >= 2
    assert all(variant.keys() <= {"replace", "replace_alone", "alone", "shared", "settings"} for variant in variants)


def test_a_version_is_edited_alone_where_the_entry_says_so(
    sources: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = a_clone(tmp_path / "clones", "print('theirs')\n") | {"replace_alone": [["theirs", "another's"]]}
    (tmp_path / "one.diff").write_text(
        "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-print('theirs')\n+print('ours')\n"
    )
    monkeypatch.setattr(sources, "HERE", tmp_path)
    home = sources.fetch("one", of, tmp_path / "clones", tmp_path / "out")
    assert (home / "alone" / "train.py").read_text() == "print('another's')\n"
    assert (home / "shared" / "train.py").read_text() == "print('ours')\n"
