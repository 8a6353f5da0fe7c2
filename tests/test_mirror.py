"""`tests/` mirrors the package: `paceline/A/B/c.py` is tested in `tests/A/B/test_c.py`.

`tests/not_mirrored.toml` lists the modules that have no such file, a table for each folder, with the reason. The list
may only be so long, and what stands in it has to be true.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LISTED_PERCENT_MAX = 20
REASON_WORDS_MAX = 20

MODULES = {
    file.relative_to(ROOT / "paceline").with_suffix("")
    for file in (ROOT / "paceline").rglob("*.py")
    if file.name != "__init__.py"
}
TABLES = tomllib.loads((ROOT / "tests" / "not_mirrored.toml").read_text())
LISTED = {Path(folder) / name: reason for folder, table in TABLES.items() for name, reason in table.items()}


def own_test(module: Path) -> Path:
    return ROOT / "tests" / module.parent / f"test_{module.name}.py"


def test_every_module_has_a_test_file_of_its_name_or_is_listed() -> None:
    assert sorted(str(m) for m in MODULES if not own_test(m).exists() and m not in LISTED) == []


def test_who_is_listed_is_a_module_without_such_a_file() -> None:
    assert sorted(str(m) for m in LISTED if m not in MODULES) == []
    assert sorted(str(m) for m in LISTED if own_test(m).exists()) == []


def test_at_most_a_fifth_is_listed() -> None:
    assert 100 * len(LISTED) <= LISTED_PERCENT_MAX * len(MODULES), f"{len(LISTED)} of {len(MODULES)}"


def test_a_reason_is_a_few_words_and_the_tests_that_it_names_exist() -> None:
    for module, reason in LISTED.items():
        assert 1 < len(reason.split()) <= REASON_WORDS_MAX, module
        assert [path for path in re.findall(r"[\w/]+\.py", reason) if not (ROOT / "tests" / path).exists()] == [], (
            module
        )
