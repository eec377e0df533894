"""Stopping servers: culling, orders, drains and returns."""
