"""Makes the keys of one run on this machine, in a folder that only its owner can enter and that goes with the run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from paceline.config import Config
from paceline.config.sections import TORCH_CARRIERS
from paceline.core.coordination import party
from paceline.core.coordination.party import Party
from paceline.live.same_host.temporary_folder import TemporaryFolder
from paceline.live.security.tls import Tls


class Credentials:
    """Holds keys and certificates of all parties of a run, by a new authority whose own key exists in memory only.

    So nobody can make a certificate for this run afterwards.
    """

    def __init__(self, parties: Iterable[Party]) -> None:
        from paceline.live.security.certificate_authority import (
            CertificateAuthority,  # costs a tenth of a second, and few runs need it
        )

        self._folder = TemporaryFolder("keys")  # 0700
        self.path = str(Path(self._folder.name) / "credentials")
        authority = CertificateAuthority()
        authority.write(Path(self.path), parties)
        self.pin = authority.pin

    def tls(self, me: Party) -> Tls:
        """Returns the TLS settings of one party."""
        return Tls(self.path, me)

    def remove(self) -> None:
        """Deletes the folder."""
        self._folder.cleanup()


def credentials_for(config: Config) -> Credentials | None:
    """Returns new credentials for all parties; None for a run without TLS."""
    if not config.cluster.secured:
        return None
    workers = map(party.worker, range(config.cluster.workers))
    servers = map(party.server, range(config.cluster.servers))
    return Credentials([party.COORDINATOR, party.EVALUATOR, *workers, *servers])


def security_note(config: Config, credentials: Credentials | None, mean: str) -> str:
    """Returns the line of a run's header that says who can reach it. `mean`: who carries the means."""
    if credentials is None:
        return (
            f"security: nothing listens beyond this machine ({config.cluster.bind}); both sides prove the run's token"
        )
    but = (
        f"; but not for means: {mean} sends them in the clear, --allreduce ring would not"
        if mean in TORCH_CARRIERS
        else ""
    )
    shown = f"parties show certificates of this run ({credentials.pin[:19]}...)"
    return f"security: TLS 1.3 on {config.cluster.bind}; {shown}{but}"
