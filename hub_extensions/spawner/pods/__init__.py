"""Changes of KubeSpawner's pods, and the launch of a pod."""
