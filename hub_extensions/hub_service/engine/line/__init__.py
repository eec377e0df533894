"""Tickets and leases: joining, admission, reconciliation and release."""
