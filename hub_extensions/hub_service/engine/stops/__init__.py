"""Stops of servers: who orders them, what is known of each server, and the runner that carries them out.

Administrators' other orders are here too: closing cards to new servers, and messages to users.
"""
