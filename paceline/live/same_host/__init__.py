"""What processes of one host have besides TCP: shared memory, Unix sockets that pass it on, temporary folders.

Read `shared_memory.py` first. Of `live/` it may import the files beside the folders.
"""
