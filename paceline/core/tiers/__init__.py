"""Puts one scheme inside groups of workers and another one between the groups; `paceline.schemes.tiers` is made of it.

Read `worker.py` first. `rank_groups.py` says who is in which group, `group_server.py` what a group does for itself,
`outer_server.py` how the groups meet, `speakers.py` who speaks for each. Of `core/` it may import `adaptive/`,
`collective/`, `paramserver/`, `validation/` and the files beside the folders.
"""
