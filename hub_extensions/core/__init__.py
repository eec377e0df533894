"""THINKS. Values in, values out: no clock, no network, no log, no framework, no environment."""
