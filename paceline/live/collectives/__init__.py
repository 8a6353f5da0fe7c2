"""Means that workers carry themselves, over their own connections, and where they meet for torch.distributed.

Read `peer_backend.py` first. May import `live/net` and what is below it.
"""
