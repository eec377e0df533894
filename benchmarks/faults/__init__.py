"""Faults and attacks, on the loopback address only: what they break is counted."""
