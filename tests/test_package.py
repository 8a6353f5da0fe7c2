"""The wheel and the sdist hold all that the package needs, and work outside the checkout."""

from __future__ import annotations

import zipfile
from pathlib import Path

from scripts import check_package


def test_the_wheel_trains_in_an_environment_outside_the_checkout(tmp_path: Path) -> None:
    check_package.check(tmp_path, installs=False)


def test_a_file_that_the_wheel_lacks_is_named(tmp_path: Path) -> None:
    wheel, sdist = check_package.build(tmp_path)
    thin = tmp_path / "thin.whl"
    with zipfile.ZipFile(wheel) as whole, zipfile.ZipFile(thin, "w") as less:
        for name in whole.namelist():
            if name != "paceline/py.typed":
                less.writestr(name, whole.read(name))
    assert check_package.missing_files(thin, sdist) == ["paceline/py.typed: not in the wheel"]
