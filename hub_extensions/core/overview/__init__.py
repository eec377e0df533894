"""The administrators' overview: cards and their holders, totals, health, and the last days."""
