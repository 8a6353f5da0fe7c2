"""One scheme after the other: how phases are written, when one ends, and roles that change with them.

Read `grammar.py` first. May import `core/`.
"""
