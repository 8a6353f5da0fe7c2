"""The vocabulary of schemes: what a role may ask for, what a message and a scheme are. Standard library only.

Read `effects.py` first, then `role.py` and `scheme.py`. The sub-folders hold what several schemes share. May import
nothing else of the package; knows no torch, no clock and no socket.
"""
