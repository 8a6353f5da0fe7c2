"""What several verbs of the command line share: options, the run that goes on, the catalogue, the page beside a run.

Read `options.py` first, then `run_and_report.py`. Of `cli/` it may import nothing else.
"""
