"""The GPU service, which runs beside the hub and decides who gets a GPU and when a server has to stop.

It keeps the tickets (users' places in line), the leases of devices, the usage records and the policies.
"""
