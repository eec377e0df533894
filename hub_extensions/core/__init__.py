"""The rules of the product as pure functions: no clock, network, log, framework or environment.

Every input of a rule, including the time, is an argument. CONTRIBUTING.md, "Where things go", describes the folders.
"""
