"""Configurations for proxies that ask the gate about each request to an app, generated from the catalogue of apps."""
