"""For servers that are pods: the changes that an offer makes to KubeSpawner's pod, and the launch of the pod."""
