"""Reads ESync's own files: the logs of its runs become runs of this package.

Read `log_reader.py`. Of `compat/` it may import nothing else.
"""
