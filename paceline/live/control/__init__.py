"""The control plane at a worker, a server or the evaluator: hello, plan, reports, and who may send what.

Read `session.py` first, whose head says what its parts do, then `handlers.py` and `permissions.py`. Of `live/` it may
import `collectives/`, `node/`, `protocol/` and the files beside the folders.
"""
