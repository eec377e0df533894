"""The Go modules of the cluster's programs, and what builds them."""
