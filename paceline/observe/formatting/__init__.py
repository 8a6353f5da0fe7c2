"""This folder writes numbers, tables and paragraphs as people read them, in a terminal, a figure, the page or a log.

Read `number_format.py` first. Of `observe/` it may import nothing.
"""
