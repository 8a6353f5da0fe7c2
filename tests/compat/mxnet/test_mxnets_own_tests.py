"""MXNet's own tests, where `python -m scripts.mxnet_tests` has fetched them.

CI does not have them: `test_local.py` and `test_distributed.py` hold the same behaviour.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts.mxnet_tests import CASES, FILES, FOLDER, ROOT, SHIM, run

PAGE = (ROOT / "docs" / "migration-mxnet.md").read_text()


@pytest.mark.parametrize("case", [case for case in CASES if not case.skipped and not case.distributed][:4], ids=str)
def test_mxnets_own_tests_pass(case: object) -> None:
    if not (FOLDER / FILES[0]).exists():
        pytest.skip("MXNet's tests are not here: python -m scripts.mxnet_tests fetches them")
    passed, failed, said = run(case, FOLDER)  # type: ignore[arg-type]
    assert (failed, passed > 0) == (0, True), said[-2000:]


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
