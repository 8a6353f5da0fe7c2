"""What carries `Mean` in a run: servers, the workers' own connections, or torch.distributed.

Read `choice.py` first. May import `runtime/spec`.
"""
