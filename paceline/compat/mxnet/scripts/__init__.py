"""Translates command lines of MXNet's image classification examples, and of MXNet-G, into Paceline's.

Read `translation.py` first. Of `compat/` it may import nothing else.
"""
