"""What processes of one host have besides TCP: shared memory, and Unix sockets that pass it on.

Read `shared_memory.py` first. Imports nothing of the package but errors.
"""
