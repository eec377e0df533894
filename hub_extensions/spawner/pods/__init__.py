"""What is changed in KubeSpawner's pods, and what the API server says of them."""
