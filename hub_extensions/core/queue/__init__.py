"""Tickets and leases: which ticket is admitted, which waits and how long, and how their states change.

A ticket is a server's place in line. A lease is the right of one server to a share of one device. A pool is all devices
of one kind, which one line serves. Admission lets a ticket start and, if it is for a GPU, gives it a lease.
"""
