"""A Kubernetes cluster: its nodes, their GPUs, shared GPUs, DRA, and the state of pods.

All devices of one kind form a pool, wherever in the cluster they are. Devices are only counted, because the scheduler
picks them.
"""
