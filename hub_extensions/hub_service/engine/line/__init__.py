"""Tickets (users' places in line) and leases: joining, admission, comparison with the hub, and release."""
