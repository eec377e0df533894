module jupyterhub-gpu/tests/cluster/traefik

go 1.26.0

require github.com/traefik/traefik/v3 v3.7.13
