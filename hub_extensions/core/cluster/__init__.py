"""What a cluster has and what its pods may get: nodes, pools, shared GPUs, DRA, and why a pod has no place."""
