"""The run's own certificate authority: keys are readable by their owner alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.core.coordination.party import COORDINATOR, server, worker
from paceline.core.errors import ConfigError
from paceline.live.security import certificate_authority
from paceline.live.security.certificate_authority import CertificateAuthority

PARTIES = [COORDINATOR, server(0), worker(0), worker(1)]


def test_keys_are_for_their_owner_only(folder: Path) -> None:
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    with pytest.raises(ConfigError, match="File exists"):
        CertificateAuthority().write(folder, [worker(0)])


@pytest.mark.parametrize("there", [True, False])
def test_no_secret_is_written_through_a_link(tmp_path: Path, there: bool) -> None:
    elsewhere = tmp_path / "elsewhere"
    if there:
        elsewhere.write_text("what somebody else wrote")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "job").symlink_to(elsewhere)
    with pytest.raises(ConfigError):
        certificate_authority.write_secret(folder, "job", b"secret")
    assert elsewhere.exists() == there
    assert not there or elsewhere.read_text() == "what somebody else wrote"
