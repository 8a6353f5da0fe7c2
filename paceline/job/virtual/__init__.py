"""A run in virtual time: the scheme, the model and the data are real, the machines and the clock are not.

setting    what is simulated: configuration, cluster, size of the model, whether numbers are wanted
recorded   a cluster made of what a run has left
work       what a virtual worker's step gives: real gradients, or vectors that have a size only
meters     what each virtual worker has done
judge      looks at the model from time to time
run        the run itself
"""
