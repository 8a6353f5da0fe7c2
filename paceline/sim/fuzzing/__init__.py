"""Runs in which everything that can go wrong is drawn from a seed, with all invariants watching.

Read `fuzz.py` first. May import all of `sim/`.
"""
