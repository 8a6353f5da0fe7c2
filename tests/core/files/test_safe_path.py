"""Names become paths under one folder, or are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.errors import ConfigError
from paceline.core.files.safe_path import safe_join

ROOT = Path("/tmp/of-a-run")
NAMES = st.text(st.sampled_from("abz09._-/\\\0 é~$"), max_size=70) | st.sampled_from(["..", ".", "", "/etc/passwd"])


@given(st.lists(NAMES, min_size=1, max_size=4))
def test_whatever_the_names_are_the_path_stays_below_the_folder_or_is_refused(names: list[str]) -> None:
    try:
        path = safe_join(ROOT, *names)
    except ConfigError:
        return
    assert path.parts == (*ROOT.resolve().parts, *names), "each name is one part of the path, and unchanged"
    assert not {".", ".."} & set(names)


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "/etc", "a\0b", "a\n", "x" * 65, "tür"])
def test_what_is_no_plain_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is not a file name"):
        safe_join(ROOT, name)


def test_a_link_may_not_lead_out(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "out").symlink_to("/")
    (tmp_path / "in").symlink_to(tmp_path / "inside")
    assert safe_join(tmp_path, "in", "x.log") == tmp_path.resolve() / "in" / "x.log"
    with pytest.raises(ConfigError, match="leads out of"):
        safe_join(tmp_path, "out", "etc")
