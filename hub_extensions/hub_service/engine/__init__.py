"""The engine: the state of tickets (users' places in line), leases and servers, and the loops that decide about them.

Nothing outside this package changes the state.
"""
