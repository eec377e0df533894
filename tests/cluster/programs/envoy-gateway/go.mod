module jupyterhub-gpu/tests/cluster/envoy-gateway

go 1.26.0

require github.com/envoyproxy/gateway v1.6.0
