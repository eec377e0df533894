"""Configurations of proxies that ask the gate, written from the catalogue of apps."""
