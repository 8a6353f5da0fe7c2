"""Contains front ends of older systems: their calls and files, on Paceline's parts.

Read `mxnet/api.py` first: MXNet's key-value store. `esync/` reads the logs of ESync. May import `launch/` and
everything below it.
"""
