"""A Kubernetes cluster: nodes, pools of devices, shared GPUs, DRA, and the state of pods."""
