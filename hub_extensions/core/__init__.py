"""Decisions as pure functions: no clock, network, log, framework or environment. See CONTRIBUTING.md, "Where things
go".
"""
