"""What a large cluster costs: a real API server with 1,000 nodes and 10,000 pods, the real service and a real hub.

``python -m benchmarks.cluster`` needs root and the programs of ``tests/cluster``. Nothing runs in the pods.
"""
