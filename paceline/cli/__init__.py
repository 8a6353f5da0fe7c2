"""The command line.

Read `main.py` first: it picks the verb of `commands/`, turns errors into one line and an exit code.
May import everything.
"""
