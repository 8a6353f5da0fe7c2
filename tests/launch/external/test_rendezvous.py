"""How workers find the process that leads: an address, a token, a folder of tickets."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from paceline.core.errors import ConfigError, PacelineError
from paceline.launch.external import follower, rendezvous
from paceline.launch.external.follower import register
from paceline.launch.remote.callback_listener import CallbackListener, call, ticket_from
from tests.launch.external.others import WORKER

SECRET = "0123456789abcdef" * 4


def test_whoever_has_the_token_finds_the_door_and_nobody_else_does() -> None:
    listener = CallbackListener("127.0.0.1", secret=SECRET)
    port = int(listener.ticket.split('"port": ')[1].split(",")[0])
    stream, key, address = call(ticket_from(SECRET, "127.0.0.1", port))
    assert (key.token in listener.ticket, SECRET in listener.ticket, address) == (True, False, "127.0.0.1")
    stream.free()
    with pytest.raises(PacelineError, match="cannot be reached: .*certificate verify failed"):
        call(ticket_from("another" * 8, "127.0.0.1", port))
    listener.close()


def test_beyond_this_host_a_token_is_asked_for_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = dataclasses.replace(WORKER, host="10.1.2.3")
    monkeypatch.delenv(rendezvous.TOKEN, raising=False)
    with pytest.raises(ConfigError, match="10.1.2.3 is beyond this host.*openssl rand.*PACELINE_TOKEN_FILE"):
        rendezvous.secret_of(far)
    token = tmp_path / "token"
    monkeypatch.setenv(rendezvous.TOKEN, str(token))
    with pytest.raises(ConfigError, match="No such file"):
        rendezvous.secret_of(far)
    token.write_text("short\n")
    with pytest.raises(ConfigError, match="can be read by others: give it mode 0600"):
        rendezvous.secret_of(far)
    token.chmod(0o600)
    with pytest.raises(ConfigError, match="5 characters can be guessed"):
        rendezvous.secret_of(far)
    token.write_text("a" * 5000)
    with pytest.raises(ConfigError, match="has more than 4096 bytes"):
        rendezvous.secret_of(far)
    token.write_text(SECRET + "\n")
    assert rendezvous.secret_of(far) == SECRET
    assert rendezvous.secret_of(WORKER) == ""


def test_a_folder_of_tickets_that_others_can_enter_is_not_used(alone: Path) -> None:
    (alone / f"paceline-{os.getuid()}").mkdir(mode=0o755)
    with pytest.raises(ConfigError, match="is not a folder of yours alone"):
        rendezvous.ticket_of(WORKER)


def test_nobody_there_is_told_with_who_is_missing(alone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower, "CALLING_SECONDS", 0.3)
    with pytest.raises(PacelineError, match=r"waited 0 s for its scheduler at 127.0.0.1, port 0: is it started\?"):
        register(dataclasses.replace(WORKER, own_servers=False))


def test_what_will_not_be_better_later_is_told_at_once_and_a_ticket_that_is_none_is_waited_for(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "CALLING_SECONDS", 0.0)
    ticket = rendezvous.ticket_of(WORKER)
    ticket.write_text("{}")
    with pytest.raises(PacelineError, match="waited 0 s for rank 0 at .*'authority'"):
        register(dataclasses.replace(WORKER, starter="mpi"))
    ticket.parent.chmod(0o755)
    with pytest.raises(ConfigError, match="is not a folder of yours alone"):
        register(WORKER)
