"""The walls: who may import whom, how long a file and a function may be, what nobody may use."""

from __future__ import annotations

import ast
import graphlib
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "paceline"

BELOW_CONFIG = {"core", "schemes", "sim", "live", "codec", "engine", "observe", "checkpoint"}
MAY_IMPORT: dict[str, set[str]] = {
    "core": {"core"},
    "schemes": {"core"},
    "sim": {"core", "sim"},
    "live": {"core", "codec", "live"},
    "codec": {"core", "codec"},
    "engine": {"core", "engine"},
    "checkpoint": {"core", "checkpoint"},
    "observe": {"core.trace", "core.errors", "core.files", "observe"},
    "config": BELOW_CONFIG | {"config"},
    "runtime": BELOW_CONFIG | {"config", "runtime"},
    "chaos": BELOW_CONFIG | {"config", "runtime", "chaos"},
    "launch": BELOW_CONFIG | {"config", "runtime", "launch"},
    "bench": BELOW_CONFIG | {"config", "runtime", "launch", "bench"},
    "compat": BELOW_CONFIG | {"config", "runtime", "launch", "compat"},
    "integrations": BELOW_CONFIG | {"config", "runtime", "launch", "integrations"},
    "kvstore": {"compat"},
    "cli": BELOW_CONFIG | {"config", "runtime", "launch", "compat", "bench", "chaos", "cli"},
}
"""What each part of the package may import of the package; `core.trace` is that module only."""

STANDARD_LIBRARY_ONLY = {"core", "schemes", "sim"}
TORCH_AT_MODULE_LEVEL = {"engine", "runtime", "bench", "compat", "integrations"}
MAY_NAME_A_SCHEME = {"cli", "compat"}
FILES_IN_A_FOLDER_MAX = 16
"""Besides its `__init__.py`. A folder of many of one kind may have more: one file a scheme, one a verb."""
MANY_OF_ONE_KIND = {"schemes", "cli/commands"}
BANNED_MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "marshal", "shelve"}
BANNED_CALLS = {"eval", "exec", "torch.load", "yaml.load", "time.sleep"}


@dataclass(frozen=True)
class Import:
    file: Path
    line: int
    target: str
    at_module_level: bool

    @property
    def layer(self) -> str:
        """`core` for paceline/core/effects.py, `config` for paceline/config.py, `` for paceline/__init__.py."""
        parts = self.file.relative_to(PACKAGE).with_suffix("").parts
        return parts[0] if parts[0] not in ("__init__", "__main__") else ""

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line} imports {self.target}"


FILES = sorted(PACKAGE.rglob("*.py"))
TREES = {file: ast.parse(file.read_text(), str(file)) for file in FILES}
MODULES = {".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for file in FILES}


def nodes(tree: ast.AST, at_module_level: bool = True) -> Iterator[tuple[ast.AST, bool]]:
    """Every node, and whether it is carried out when the module is imported."""
    for child in ast.iter_child_nodes(tree):
        for_types = isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")
        inside = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or for_types
        yield child, at_module_level
        yield from nodes(child, at_module_level and not inside)


def targets(file: Path, node: ast.AST) -> Iterator[str]:
    """The modules an import statement names; `from package import module` names the module."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        here = ".".join(file.relative_to(ROOT).parent.parts[: len(file.relative_to(ROOT).parts) - node.level])
        base = ".".join(filter(None, [here if node.level else "", node.module or ""]))
        for alias in node.names:
            inner = f"{base}.{alias.name}"
            # A scheme is named by its class as well as by its module.
            yield inner if inner in MODULES or base == "paceline.schemes" else base


IMPORTS = [
    Import(file, node.lineno, target, at_module_level)  # type: ignore[attr-defined]
    for file, tree in TREES.items()
    for node, at_module_level in nodes(tree)
    for target in targets(file, node)
]


def within(target: str, names: set[str]) -> bool:
    return any(target == f"paceline.{name}" or target.startswith(f"paceline.{name}.") for name in names)


def test_every_part_of_the_package_has_its_place() -> None:
    parts = {file.relative_to(PACKAGE).parts[0].removesuffix(".py") for file in FILES}
    assert parts - {"__init__", "__main__", "__pycache__"} <= set(MAY_IMPORT)


def test_imports_point_downwards() -> None:
    wrong = [
        str(i)
        for i in IMPORTS
        if i.target.startswith("paceline.") and i.layer and not within(i.target, MAY_IMPORT[i.layer])
        if not (i.file == PACKAGE / "schemes" / "__init__.py" and within(i.target, {"schemes"}))
    ]
    assert wrong == []


def test_nobody_names_a_particular_scheme() -> None:
    wrong = [
        str(i)
        for i in IMPORTS
        if i.target.startswith("paceline.schemes.") and i.layer not in MAY_NAME_A_SCHEME
        if i.file != PACKAGE / "schemes" / "__init__.py"
    ]
    assert wrong == []


def test_the_core_the_schemes_and_the_simulator_need_the_standard_library_only() -> None:
    ours = sys.stdlib_module_names | {"paceline"}
    wrong = [str(i) for i in IMPORTS if i.layer in STANDARD_LIBRARY_ONLY and i.target.split(".")[0] not in ours]
    assert wrong == []


def test_torch_is_imported_with_the_module_by_the_engine_and_the_job_only() -> None:
    wrong = [
        str(i)
        for i in IMPORTS
        if i.target.split(".")[0] == "torch" and i.at_module_level and i.layer not in TORCH_AT_MODULE_LEVEL
    ]
    assert wrong == []


def test_nothing_that_runs_what_it_reads_is_used() -> None:
    wrong = [str(i) for i in IMPORTS if i.target.split(".")[0] in BANNED_MODULES]
    wrong += [str(i) for i in IMPORTS if i.target in BANNED_CALLS]
    for file, tree in TREES.items():
        renamed = {"sleep": "time.sleep"} if any(i.file == file and i.target == "time" for i in IMPORTS) else {}
        for node, _ in nodes(tree):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if renamed.get(called, called) in BANNED_CALLS:
                    wrong.append(f"{file.relative_to(ROOT)}:{node.lineno} calls {called}")
    assert wrong == []


def folder_of(module: str) -> str:
    """`paceline/core` for paceline.core and for paceline.core.effects."""
    path = Path(*module.split("."))
    return str(path if (ROOT / path).is_dir() else path.parent)


def needed_while_it_runs(file: Path) -> Iterator[str]:
    """The modules of the package that `file` imports, not counting imports for the type checker alone."""
    for node in ast.walk(TREES[file]):
        if isinstance(node, ast.Import | ast.ImportFrom) and node not in FOR_TYPES[file]:
            yield from (target for target in targets(file, node) if target in MODULES)


FOR_TYPES = {
    file: {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for inner in ast.walk(node)
    }
    for file, tree in TREES.items()
}


def test_folders_need_one_another_in_one_order_sub_folders_too() -> None:
    needs: dict[str, set[str]] = {}
    for file in FILES:
        own = str(file.parent.relative_to(ROOT))
        if file.name != "__init__.py" and file.parent != PACKAGE:  # which offer what lies in the folders below
            others = {folder_of(target) for target in needed_while_it_runs(file)}
            needs.setdefault(own, set()).update(others - {own, "paceline"})
    try:
        order = list(graphlib.TopologicalSorter(needs).static_order())
    except graphlib.CycleError as error:
        pytest.fail(f"folders that need one another: {' -> '.join(error.args[1])}")
    assert order.index("paceline/core") < order.index("paceline/schemes") < order.index("paceline/cli/commands")


FILES_THAT_NEED_ONE_ANOTHER = {
    frozenset({"observe.terminal.progress", "observe.terminal.worker_table"}),
    frozenset(
        f"engine.optim.{name}"
        for name in ("grouped_sgd", "lazy_updates", "optimizers", "parameter_groups", "whole_tensors")
    ),
}
"""Modules none of which can be read without the others, as imports for the type checker count, too."""


def test_no_files_need_one_another_not_even_in_annotations_but_those_listed() -> None:
    """None in the simulator: its parts name `SimulationDriver` and what derives from it, not `Simulation`."""
    modules = {module_of(file): file for file in FILES if file.name != "__init__.py"}
    needs = {
        module: {
            target
            for node in ast.walk(TREES[file])
            if isinstance(node, ast.Import | ast.ImportFrom)
            for target in targets(file, node)
            if target in modules and target != module
        }
        for module, file in modules.items()
    }
    found = {frozenset(name.removeprefix("paceline.") for name in group) for group in cycles(needs)}
    assert found - FILES_THAT_NEED_ONE_ANOTHER == set()
    assert not any(name.startswith("sim.") for group in found for name in group)


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts)


def cycles(needs: dict[str, set[str]]) -> list[set[str]]:
    """The sets of names each of which needs all others of its set, perhaps by way of them."""
    reached: dict[str, set[str]] = {}
    for name in needs:
        seen, left = set[str](), [name]
        while left:
            new = needs[left.pop()] - seen
            seen |= new
            left += new
        reached[name] = seen
    groups = {frozenset({a, *(b for b in reached[a] if a in reached[b])}) for a in needs if a in reached[a]}
    return [set(group) for group in groups]


def test_cycles_are_found() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}) == [{"b", "c"}]


def test_no_folder_is_a_heap() -> None:
    folders = {file.parent for file in FILES}
    sizes = {str(f.relative_to(PACKAGE)): len([x for x in f.glob("*.py") if x.name != "__init__.py"]) for f in folders}
    crowded = {name: size for name, size in sizes.items() if size > FILES_IN_A_FOLDER_MAX}
    assert {name for name in crowded if name not in MANY_OF_ONE_KIND} == set(), crowded


def test_every_folder_says_what_lives_there_what_to_read_first_and_what_it_may_import() -> None:
    silent = []
    for folder in {file.parent for file in FILES} - {PACKAGE}:
        told = ast.get_docstring(TREES[folder / "__init__.py"]) or ""
        may_import = r"May\simport" if folder.parent == PACKAGE else rf"Of\s`{top_of(folder)}/`\sit\smay\simport"
        if not (2 <= len(told.splitlines()) <= 12 and "Read `" in told and re.search(may_import, told)):
            silent.append(str(folder.relative_to(ROOT)))
    assert silent == []


def top_of(folder: Path) -> str:
    return folder.relative_to(PACKAGE).parts[0]


def test_a_folder_imports_of_its_package_just_the_folders_that_it_names() -> None:
    """Imports for the type checker alone are left out."""
    untrue = []
    for folder in {file.parent for file in FILES}:
        if folder == PACKAGE or folder.parent == PACKAGE:
            continue
        top = f"paceline/{top_of(folder)}"
        told = re.split(r"it\smay\simport", ast.get_docstring(TREES[folder / "__init__.py"]) or "")[-1]
        named = {f"{top}/{name}" for name in re.findall(r"`([\w/]+)/`", told)}
        named |= {top} if re.search(r"the\sfiles\sbeside\sthe\sfolders", told) else set()
        own = str(folder.relative_to(ROOT))
        files = [file for file in folder.glob("*.py") if file.name != "__init__.py"]
        needed = {folder_of(target) for file in files for target in needed_while_it_runs(file)} - {own}
        needed = {other for other in needed if other == top or other.startswith(f"{top}/")}
        if needed != named:
            untrue.append(f"{own} imports {sorted(needed)} and names {sorted(named)}")
    assert untrue == []


def test_the_map_names_every_folder() -> None:
    told = (ROOT / "ARCHITECTURE.md").read_text()
    folders = {file.parent.relative_to(PACKAGE) for file in FILES} - {Path(".")}
    assert [
        str(f) for f in folders if not any(f"`{'/'.join(f.parts[i:])}/`" in told for i in range(len(f.parts)))
    ] == []


def test_a_class_has_a_name_of_its_own_in_the_package() -> None:
    """Boxes of schemes, which are classes within their scheme, are called `Worker` and `Server` in all of them."""
    named = [node.name for tree in TREES.values() for node in tree.body if isinstance(node, ast.ClassDef)]
    assert {name for name in named if named.count(name) > 1 and not name.startswith("_")} == set()


def test_files_are_short() -> None:
    lengths = {str(file.relative_to(ROOT)): len(file.read_text().splitlines()) for file in FILES}
    assert {name: length for name, length in lengths.items() if length > 800} == {}
    assert statistics.median(lengths.values()) <= 150


def test_functions_are_short() -> None:
    lengths = {
        f"{file.relative_to(ROOT)}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for file, tree in TREES.items()
        for node, _ in nodes(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: length for name, length in lengths.items() if length > 60} == {}
    assert statistics.median(lengths.values()) <= 12


def python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_importing_the_package_is_cheap() -> None:
    python("import sys, typing; before = set(sys.modules); import paceline; assert len(set(sys.modules) - before) < 20")


@pytest.mark.parametrize("module", ["paceline", "paceline.core", "paceline.schemes", "paceline.sim"])
def test_importing_it_does_not_import_what_is_heavy(module: str) -> None:
    python(f"import {module}, sys; assert not {{'torch', 'numpy', 'matplotlib'}} & set(sys.modules)")
