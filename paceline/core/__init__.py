"""The vocabulary of a scheme: standard library only, no torch, no clock, no socket.

effects    what a role may ask its driver for          scheme     name, paper, parameters, boxes; the registry
role       the loop box and the "upon receiving" box    clocked    the clock-gated server many schemes share
message    records that travel                          mean       the server's side of `Mean`
vector     what may be done with a slice of the model   staleness  weights of late contributions
clocks     the slowest worker in O(1)                   trace      typed records of what happened
"""
