"""The hello of an agent."""

from __future__ import annotations

from paceline.launch.remote import agent_messages as messages


def hello() -> messages.AgentHello:
    return messages.AgentHello(host="x", pid=1, python="3", paceline="0", torch="2")
