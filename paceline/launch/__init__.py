"""How the processes of a run are started and ended: one environment a file.

forkserver   a warm process that the others are forked from      local   the crew of a run on this machine
script       somebody's own training script, several times       agents  the crew of a run on several machines
"""
