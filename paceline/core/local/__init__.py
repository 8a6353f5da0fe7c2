"""What schemes share whose workers train on models of their own: local SGD, elastic averaging, gossip.

Read `local_sgd.py` first. May import `core/` and `core/validation`.
"""
