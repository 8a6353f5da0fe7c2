"""MXNet's own tests, where `python -m scripts.mxnet_tests` has fetched them.

CI does not have them: `test_local.py` and `test_distributed.py` hold the same behaviour.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.mxnet_tests import CASES, FILES, FOLDER, ROOT, SHIM, run

STEP = """
import mxnet as mx

x = mx.gluon.Parameter("x", shape=(3,))
x.initialize(ctx=[mx.cpu(0), mx.gpu(1)], init="zeros")
trainer = mx.gluon.Trainer([x], "sgd", {"learning_rate": 1.0, "momentum": 0.5}, kvstore="device")
for _ in range(2):
    with mx.autograd.record():
        for w in x.list_data():
            (w + 1).backward()
    trainer.step(1)
print(type(trainer._kvstore._store).__module__, x.data(mx.gpu(1)).asnumpy().tolist())
"""
"""Two steps in which two devices have a gradient of 1 each: -2, then -2 - 1 - 2."""
PAGE = (ROOT / "docs" / "migration-mxnet.md").read_text()


@pytest.mark.parametrize("case", [case for case in CASES if not case.skipped and not case.distributed][:4], ids=str)
def test_mxnets_own_tests_pass(case: object) -> None:
    if not (FOLDER / FILES[0]).exists():
        pytest.skip("MXNet's tests are not here: python -m scripts.mxnet_tests fetches them")
    passed, failed, said = run(case, FOLDER)  # type: ignore[arg-type]
    assert (failed, passed > 0) == (0, True), said[-2000:]


def test_a_trainer_of_the_shim_makes_its_steps_on_a_store_of_ours() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SHIM), str(ROOT)])}
    done = subprocess.run([sys.executable, "-c", STEP], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "paceline.compat.mxnet.local [-5.0, -5.0, -5.0]", done.stderr


def test_the_page_has_a_row_for_each_of_them() -> None:
    rows = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)
    assert [str(case) for case in CASES if str(case) not in rows] == []


def test_nothing_of_the_product_needs_the_shim() -> None:
    for file in (ROOT / "paceline").rglob("*.py"):
        assert SHIM.name not in file.read_text(), file


def test_no_file_of_theirs_is_kept_here() -> None:
    ours = {file.name for folder in ("tests", "paceline", "scripts") for file in (ROOT / folder).rglob("*.py")}
    theirs = {Path(name).name for name in FILES if name.startswith("tests/nightly/dist")}
    assert ours & theirs == set()
