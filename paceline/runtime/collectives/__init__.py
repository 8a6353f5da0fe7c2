"""This folder has what carries `Mean` in a run: servers, the workers' own connections, or torch.distributed.

Read `choice.py` first. Of `runtime/` it may import `spec/`.
"""
