"""What this machine reaches, against what it allows: the measurements behind `paceline bench`.

exchange  a push and pull between workers and servers     mean    a mean that workers carry among themselves
codec     encoding and decoding a gradient                overhead  a training step, against the plain PyTorch loop
links     latency and bandwidth between two processes

figure    what each of them gives: seconds, the limit's seconds, their ratio
limits    what memory and a plain socket do
child     the other processes of a measurement            parties   a party without a run around it
report    figures as a table and as JSON

Whatever is compared takes turns, round by round, in one run: a machine that has other things to do disturbs both sides
alike. The scripts in benchmarks/ are claims over these figures.
"""
