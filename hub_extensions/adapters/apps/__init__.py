"""The catalogue of apps behind the gate, and the requests of the audit."""
