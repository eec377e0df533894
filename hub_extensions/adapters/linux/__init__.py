"""Processes, sockets and time limits of this machine."""
