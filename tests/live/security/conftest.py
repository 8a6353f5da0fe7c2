"""Fixtures of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.core.coordination.party import COORDINATOR, server, worker
from paceline.live.security.certificate_authority import CertificateAuthority

PARTIES = [COORDINATOR, server(0), worker(0), worker(1)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Credentials of one run."""
    made = tmp_path_factory.mktemp("run") / "credentials"
    CertificateAuthority().write(made, PARTIES)
    return made
