"""Stopping servers: idle servers (culling), orders of administrators, users and the hub, closed cards and nodes, and
servers that come back without a GPU.
"""
