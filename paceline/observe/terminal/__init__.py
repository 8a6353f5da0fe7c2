"""This folder makes what a terminal shows: the live table, the outcome of a race, advice, tables of finished runs.

Read `progress.py` first. `collapse.py` and `number_format.py` give words that the page and `status.json` show too. Of
`observe/` it may import `runs/`.
"""
