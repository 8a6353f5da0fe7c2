"""ESync's own files: the logs of its runs, read as runs of this package.

Read `log_reader.py`. May import `observe/` and `core/`.
"""
