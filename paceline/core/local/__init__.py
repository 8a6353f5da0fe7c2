"""Holds what schemes share whose workers train models of their own: local SGD, elastic averaging, gossip.

Read `local_sgd.py` first. Of `core/` it may import `collective/`, `paramserver/`, `validation/` and the files beside
the folders.
"""
