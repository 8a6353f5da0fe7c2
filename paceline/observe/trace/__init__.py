"""`trace.jsonl`: written while a run goes on, kept within a size, read back; hooks that hear each record.

Read `trace_file.py` first. Of `observe/` it may import nothing else.
"""
