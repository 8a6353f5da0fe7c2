"""Asks the operating system for what files need: a lock that ends with its process, a path that stays in its
folder, a file that is one, a process that does not see the current one.

Read `file_lock.py` first. Of `core/` it may import the files beside the folders.
"""
