"""The control plane at a worker, a server or the evaluator: hello, plan, reports, and who may send what.

Read `session.py` first, then `permissions.py`. May import `live/node/node` and what is below it.
"""
