"""Lets agents and launcher prove to one another that they know the token of a ticket, which itself is never sent.

    agent     Knock        a nonce
    launcher  Challenge    a nonce of its own, and its proof
    agent     Hello        its own proof, and who it is

This is the handshake of `paceline.live.security.handshake` in words of `paceline.launch.remote.agent_messages`. It runs
under TLS, and each proof names the launcher's certificate: nobody between the two, with another certificate, can
pass a proof on.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from paceline.core.errors import PacelineError
from paceline.launch.remote import agent_messages as messages
from paceline.launch.remote.agent_messages import Event, Request
from paceline.launch.remote.message_stream import MessageStream
from paceline.live.security.handshake import CALLER, LISTENER, NONCE_BYTES, is_proof, new_nonce, proof_of

HELLO_BYTES_MAX = 1 << 16
"""Bytes of a line before the caller has proved anything."""


@dataclass(frozen=True, slots=True)
class Key:
    """Holds the token of a ticket and the launcher's certificate on one connection, as DER."""

    token: str
    certificate: bytes


def admit(lines: MessageStream[Event], key: Key, deadline: float) -> messages.AgentHello | None:
    """Returns who has called, on the launcher's side; None for a stranger. `deadline`: of the monotonic clock."""
    knock = lines.hear(deadline=deadline, bytes_max=HELLO_BYTES_MAX)
    if not isinstance(knock, messages.Knock) or len(knock.nonce) != NONCE_BYTES:
        return None
    said = key.certificate, knock.nonce, new_nonce()
    lines.say(messages.LauncherChallenge(nonce=said[-1], proof=proof_of(key.token, LISTENER, *said)))
    hello = lines.hear(deadline=deadline, bytes_max=HELLO_BYTES_MAX)
    if not isinstance(hello, messages.AgentHello) or not is_proof(hello.proof, key.token, CALLER, *said):
        return None
    return hello


def introduce(
    lines: MessageStream[Request], key: Key, hello: Callable[[], messages.AgentHello], seconds: float
) -> bool:
    """Proves the token to the launcher; returns False where it went away or said nothing.

    Raises PacelineError for an impostor.
    """
    nonce = new_nonce()
    lines.say(messages.Knock(nonce=nonce))
    challenge = lines.hear(math.inf, deadline=time.monotonic() + seconds, bytes_max=HELLO_BYTES_MAX)
    if not isinstance(challenge, messages.LauncherChallenge):
        return False
    said = key.certificate, nonce, challenge.nonce
    if not is_proof(challenge.proof, key.token, LISTENER, *said):
        raise PacelineError("it does not know the token of this process's ticket: another launch has its address")
    lines.say(msgspec.structs.replace(hello(), proof=proof_of(key.token, CALLER, *said)))
    return True
