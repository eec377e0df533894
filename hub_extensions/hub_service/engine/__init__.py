"""The one owner of tickets and leases: one state, the loops around it, and what they decide."""
