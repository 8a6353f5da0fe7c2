"""The live driver: carries the effects of a scheme out with real parties, threads and sockets.

party      who there is                        loop       the thread that moves bytes
wire       frames of bytes                     connection one socket: frames in, frames out
transport  what a driver needs of any carrier  tcp, hub   between processes, inside one process
node       one party: its roles and calls      carriers   who carries `Mean`
control    messages of the control plane       coordinator, session   its two ends
"""
