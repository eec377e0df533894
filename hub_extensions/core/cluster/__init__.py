"""A Kubernetes cluster: its nodes, their GPUs, shared GPUs, DRA, and the state of pods.

The devices of one kind form a pool, wherever in the cluster they are. Devices are counted and not known by name,
because the scheduler picks them.
"""
