"""The rules of the product as pure functions: no clock, network, log, framework or environment.

What a rule needs to know, also the time, is an argument. CONTRIBUTING.md, "Where things go", describes the folders.
"""
