"""RUNS beside the hub: owns tickets, leases, records and policies, and the decisions about them."""
