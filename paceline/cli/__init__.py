"""The command line: one verb a file.

main     picks the verb, turns errors into one line and an exit code
options  flags from the configuration
"""
