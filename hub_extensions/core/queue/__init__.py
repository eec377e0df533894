"""Tickets and leases: who is admitted, who waits and how long, and how their states change."""
