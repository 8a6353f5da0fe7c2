"""Who reaches an address, and at which a run may listen."""

from __future__ import annotations

import ipaddress

from paceline.core.errors import ConfigError


def is_loopback(host: str) -> bool:
    """Returns True if nobody beyond this machine reaches that address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_bind(host: str, protected: bool) -> None:
    """Raises ConfigError where others could listen in, and for an address that says nothing to others."""
    if not host or host.strip("[]") in ("0.0.0.0", "::"):
        raise ConfigError(f"--bind {host or repr('')}: give the one address by which others reach this machine")
    if not protected and not is_loopback(host):
        raise ConfigError(
            f"--bind {host} without TLS: whoever reaches that address could read and change the model, so Paceline "
            "does not listen there. Either leave out --tls off, so that every connection is under TLS; or leave out "
            "--bind, so that only this machine is reached (127.0.0.1); or keep 127.0.0.1 and let others in by ssh -L"
        )
