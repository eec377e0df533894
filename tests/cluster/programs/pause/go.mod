module jupyterhub-gpu/tests/cluster/pause

go 1.26.0
