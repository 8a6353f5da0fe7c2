"""This folder starts and ends the processes of a run on other hosts, by an agent on each.

Read `launcher.py` first, then `agent.py`; `agent_messages.py` is what they say to one another. Of `launch/` it may
import `local/`.
"""
