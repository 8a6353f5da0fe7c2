"""How the package is built, in figures: `python -m scripts.structure [COMMIT ...]` sets commits beside this tree.

files a folder        the most modules that lie side by side, `schemes/` and `cli/commands/` left out
names used twice      class names at module level that two modules have
star-tuples           calls with `*(a, b)` among their arguments
attributes            of the four classes that know most: distinct names assigned to `self`
prose                 lines of comments and docstrings, in percent of all lines that are not empty
without a verb        docstrings whose first sentence has none, in percent (scripts/sentences.py says how it errs)
lines                 of source that are neither empty nor prose
own test file         modules `paceline/A/B/c.py` that have `tests/A/B/test_c.py`, in percent; `__init__.py` is left out
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
import tokenize
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from scripts.sentences import docstrings, has_verb

ROOT = Path(__file__).resolve().parent.parent
MANY_OF_ONE_KIND = ("paceline/schemes", "paceline/cli", "paceline/cli/commands")
SUPERVISOR = ("Conductor", "EventLoop", "CoordinatorEvents", "RunArtifacts", "PartyLives", "RunSupervisor")
"""By its former name, and the parts that it was split into: the class that has most of them is shown."""
FOUR = (SUPERVISOR, ("Session",), ("Pace",), ("Coordinator",))


def sources(commit: str) -> dict[str, str]:
    """Path and text of each module of the package; `commit` may be empty, for the working tree."""
    if not commit:
        return {str(f.relative_to(ROOT)): f.read_text() for f in (ROOT / "paceline").rglob("*.py")}
    packed = subprocess.run(["git", "archive", commit, "paceline"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        found = {m.name: archive.extractfile(m) for m in archive.getmembers() if m.name.endswith(".py")}
        return {name: file.read().decode() for name, file in found.items() if file is not None}


def test_files(commit: str) -> set[str]:
    """Paths of all Python files below `tests/`; `commit` may be empty, for the working tree."""
    if not commit:
        return {str(f.relative_to(ROOT)) for f in (ROOT / "tests").rglob("*.py")}
    command = ["git", "ls-tree", "-r", "--name-only", commit, "tests/"]
    return set(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines())


def own_test(module: str) -> str:
    """The path of the test file of a module: `tests/core/test_role.py` for `paceline/core/role.py`."""
    inner = PurePosixPath(module).relative_to("paceline")
    return str(PurePosixPath("tests") / inner.with_name(f"test_{inner.name}"))


def share_with_own_test(modules: Iterable[str], tests: set[str]) -> str:
    expected = [own_test(module) for module in modules if not module.endswith("__init__.py")]
    return f"{100 * sum(path in tests for path in expected) / len(expected):.0f} % of {len(expected)}"


def fullest_folder(paths: Mapping[str, str]) -> str:
    sizes = Counter(str(PurePosixPath(path).parent) for path in paths if not path.endswith("__init__.py"))
    (folder, size) = max(((f, n) for f, n in sizes.items() if f not in MANY_OF_ONE_KIND), key=lambda pair: pair[1])
    return f"{size} ({folder.removeprefix('paceline/')})"


def attributes(trees: Mapping[str, ast.Module], names: tuple[str, ...]) -> int:
    """Of the class of one of these names that has most."""
    found = [
        {
            node.attr
            for node in ast.walk(cls)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
        }
        for tree in trees.values()
        for cls in tree.body
        if isinstance(cls, ast.ClassDef) and cls.name in names
    ]
    return max(map(len, found), default=0)


def prose_lines(text: str, tree: ast.Module) -> set[int]:
    """Numbers of the lines that are comments or docstrings and nothing else."""
    told = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return told | {t.start[0] for t in tokens if t.type == tokenize.COMMENT and t.line.lstrip().startswith("#")}


def without_a_verb(trees: Iterable[ast.Module]) -> str:
    found = [has_verb(text) for tree in trees for _, text in docstrings(tree)]
    return f"{100 * found.count(False) / len(found):.1f} %"


def figures(commit: str) -> dict[str, str]:
    texts = sources(commit)
    trees = {path: ast.parse(text) for path, text in texts.items()}
    named = Counter(n.name for tree in trees.values() for n in tree.body if isinstance(n, ast.ClassDef))
    stars = sum(
        isinstance(argument, ast.Starred) and isinstance(argument.value, ast.Tuple)
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for argument in node.args
    )
    prose = filled = 0
    for path, text in texts.items():
        full = {number for number, line in enumerate(text.splitlines(), 1) if line.strip()}
        prose += len(full & prose_lines(text, trees[path]))
        filled += len(full)
    return {
        "modules": str(len(texts)),
        "files a folder": fullest_folder(texts),
        "names used twice": str(sum(n > 1 and not name.startswith("_") for name, n in named.items())),
        "star-tuples": str(stars),
        **{f"attributes of {names[-1]}": str(attributes(trees, names)) for names in FOUR},
        "prose": f"{100 * prose / filled:.0f} %",
        "docstrings without a verb": without_a_verb(trees.values()),
        "lines": f"{filled - prose:,}",
        "own test file": share_with_own_test(texts, test_files(commit)),
    }


def main() -> None:
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        return
    columns = {commit or "working tree": figures(commit) for commit in [*sys.argv[1:], ""]}
    print(f"{'':28}" + "".join(f"{name:>28}" for name in columns))
    for row in next(iter(columns.values())):
        print(f"{row:28}" + "".join(f"{column[row]:>28}" for column in columns.values()))


if __name__ == "__main__":
    main()
