"""The servers of a key-value store: keys, their optimizer, and what workers ask of them.

Read `messages.py` first, then `key.py`. `compat/mxnet/` is what a script calls. Of `runtime/` it may import nothing
else.
"""
