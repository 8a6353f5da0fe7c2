"""The hello of an agent."""

from __future__ import annotations

from paceline.launch.remote import protocol


def hello() -> protocol.AgentHello:
    return protocol.AgentHello(host="x", pid=1, python="3", paceline="0", torch="2")
