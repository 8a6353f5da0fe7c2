"""Public scripts, fetched at the commit that `catalogue.toml` names and converted by a diff of at most LINES_MAX lines.

    python benchmarks/scripts/sources.py FOLDER                 clones from github.com
    python benchmarks/scripts/sources.py FOLDER --from DIR      takes DIR/OWNER/NAME or DIR/OWNER+NAME, bare or not

Each script has a folder below FOLDER with `alone/`, as it is published, and `shared/`, as it runs here.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LINES_MAX = 12


def catalogue() -> dict[str, dict[str, Any]]:
    return tomllib.loads((HERE / "catalogue.toml").read_text())


def changed_lines(diff: str) -> int:
    """Returns the lines that a diff takes away, or those that it adds, whichever are more."""
    return max(len(re.findall(rf"^\{sign}(?!\{sign})", diff, re.MULTILINE)) for sign in "+-")


def clone_of(repository: str, source: Path | None, folder: Path) -> Path:
    """Returns a git directory. Raises SystemExit where there is none and none can be had."""
    if source is None:
        clone = folder / "clones" / repository
        if not clone.exists():
            subprocess.run(["git", "clone", "-q", "--bare", f"https://github.com/{repository}", clone], check=True)
        return clone
    for name in (repository, repository.replace("/", "+")):
        for found in (source / name, source / name / ".git", source / name / "repo"):
            if (found / "HEAD").exists():
                return found
    raise SystemExit(f"no clone of {repository} in {source}: leave --from out to clone it")


def edit(file: Path, replace: list[list[str]]) -> None:
    """Replaces pieces of both versions of a script. Raises SystemExit where one is not there just once."""
    text = file.read_text()
    for old, new in replace:
        if text.count(old) != 1:
            raise SystemExit(f"{file.name} has {old!r} {text.count(old)} times")
        text = text.replace(old, new)
    file.write_text(text)


def fetch(name: str, of: dict[str, Any], source: Path | None, folder: Path) -> Path:
    """Writes both versions of a script. Returns the folder that has them."""
    clone, home, diff = clone_of(of["repository"], source, folder), folder / name, HERE / f"{name}.diff"
    if changed_lines(diff.read_text()) > LINES_MAX:
        raise SystemExit(f"{diff} changes more than {LINES_MAX} lines")
    entry = Path(of["entry"])
    for version in ("alone", "shared"):
        (home / version).mkdir(parents=True, exist_ok=True)
        for file in (entry, *(entry.parent / more for more in of["files"])):
            show = ["git", f"--git-dir={clone}", "show", f"{of['commit']}:{file}"]
            (home / version / file.name).write_bytes(subprocess.run(show, check=True, capture_output=True).stdout)
        edit(home / version / entry.name, [*of.get("replace", []), *of.get(f"replace_{version}", [])])
    alone = {**os.environ, "GIT_CEILING_DIRECTORIES": str(home.resolve())}  # also within another repository
    subprocess.run(["git", "apply", str(diff)], cwd=home / "shared", check=True, env=alone)
    return home


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--from", dest="source", type=Path, metavar="DIR")
    options = parser.parse_args()
    for name, of in catalogue().items():
        print(fetch(name, of, options.source, options.folder), of["repository"], of["commit"][:12])
    return 0


if __name__ == "__main__":
    sys.exit(main())
