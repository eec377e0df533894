"""Stops of servers: who orders them, what is known of each server, and the runner that carries them out.

Also what administrators order beside: cards that are closed to new servers, and messages to users.
"""
