"""The control plane at a worker, a server or the evaluator: hello, plan, reports, and who may send what.

Read `session.py` first, then `permissions.py`. Of `live/` it may import `collectives/`, `node/`, `protocol/` and the
files beside the folders.
"""
