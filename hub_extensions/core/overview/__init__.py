"""The administrators' overview page: the cards with their leases, totals, health, and the figures of the last days."""
