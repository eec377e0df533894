"""Stops of servers: idle servers (culling), and orders of administrators, users and the hub.

Also closed cards and nodes, and servers that are started again without a GPU.
"""
