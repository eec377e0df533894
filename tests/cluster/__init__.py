"""A real Kubernetes control plane, played nodes and a real node, and the tests that run on them."""
