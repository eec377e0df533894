"""The GPU service, which runs beside the hub: it owns tickets, leases, records and policies, and decides about them."""
