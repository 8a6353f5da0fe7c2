"""This folder moves bytes between processes: connections, frames, memory shared on one host, and transports made of
them.

Read `tcp_transport.py` first, then `connection.py`; `inprocess_transport.py` is the same between threads. Of `live/` it
may import `protocol/`, `same_host/`, `security/` and the files beside the folders.
"""
