"""Nothing in the package runs what it reads: the whole of its code, call by call."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "paceline"
MODULES = {"pickle", "cPickle", "_pickle", "cloudpickle", "dill", "joblib", "marshal", "shelve", "jsonpickle"}
CALLS = {"eval", "exec", "compile", "os.system", "os.popen", "torch.load", "yaml.load", "yaml.unsafe_load"}
ALLOWED: dict[str, str] = {}
"""File -> why it may. Nobody needs any of them."""


def findings(code: str) -> list[str]:
    """What is unsafe there, line by line; whatever name a module or a function was given when it was imported."""
    tree, known, found = ast.parse(code), dict[str, str](), list[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            base = f"{node.module}." if isinstance(node, ast.ImportFrom) and node.module else ""
            for alias in node.names:
                whole = base + alias.name
                known[alias.asname or alias.name] = whole
                if whole.split(".")[0] in MODULES:
                    found.append(f"{node.lineno} imports {whole}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            first, dot, rest = ast.unparse(node.func).partition(".")
            called = known.get(first, first) + dot + rest
            true = {word.arg for word in node.keywords if not is_false(word.value)}
            if called in CALLS or called.endswith(".recv_pyobj"):
                found.append(f"{node.lineno} calls {called}")
            if true & {"shell", "allow_pickle"} or "weights_only" in {
                w.arg for w in node.keywords if is_false(w.value)
            }:
                found.append(f"{node.lineno} calls {called} with something unsafe")
    return found


def is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False


def test_nothing_that_runs_what_it_reads_is_anywhere_in_the_package() -> None:
    files = {str(file.relative_to(PACKAGE)): file.read_text() for file in sorted(PACKAGE.rglob("*.py"))}
    assert {name: found for name, code in files.items() if (found := findings(code)) and name not in ALLOWED} == {}
    assert all(findings(files[name]) for name in ALLOWED), "what needs no exception has none"


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from cloudpickle import loads as f",
        "import torch as t\nt.load('x')",
        "from torch import load\nload('x')",
        "eval('1')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "from yaml import load as f\nf('x')",
    ],
)
def test_it_would_be_found_under_any_name(code: str) -> None:
    assert findings(code)


def test_what_only_sounds_like_it_is_not_found() -> None:
    assert findings("import re\nre.compile('x')\nmodel.eval()\nlayer.load('x')\nf(shell=False)") == []
