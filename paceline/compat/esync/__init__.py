"""The front door of ESync: the flags of its `main.py` as settings, its logs written, and its logs read as runs.

Read `flags.py` first, then `log_reader.py`. Of `compat/` it may import nothing else.
"""
