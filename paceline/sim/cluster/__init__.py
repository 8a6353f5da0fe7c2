"""Machines that need not exist: hosts, devices, links, and how long steps and messages take on them.

Read `model.py` first; `toml_file.py` reads it from files, some of which are in `examples/`. Of `sim/` it may import
nothing else.
"""
