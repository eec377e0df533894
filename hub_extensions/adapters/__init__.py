"""TALKS. One file per outside system, no rules: values in, values out, nothing decided here."""
