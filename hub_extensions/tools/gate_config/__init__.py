"""The configuration of a proxy that asks the gate, written from the catalogue of apps."""
