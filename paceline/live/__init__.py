"""The live driver: carries the effects of a scheme out with real processes, threads and sockets.

Read `node/node.py` first, then `protocol/transport.py`, `control/session.py` and `coordinator/coordinator.py`. From the
bottom up: same_host, protocol, security, net, collectives, node, control, state, coordinator. May import `core/` and
`codec/`; needs no torch.
"""
