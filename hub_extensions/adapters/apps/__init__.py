"""The catalogue of apps behind the gate, and the requests of the audit, which tries whether these apps are closed to
users without access.
"""
