"""Who is who: handshakes that prove the run's token, TLS, the run's own certificate authority.

Read `handshake.py` first. Of `live/` it may import `protocol/`.
"""
