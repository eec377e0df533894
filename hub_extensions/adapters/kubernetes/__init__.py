"""Access to a Kubernetes cluster with the official client: a watch whose objects become values of ``core.cluster``."""
