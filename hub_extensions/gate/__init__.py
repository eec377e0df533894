"""The gate: a process in front of apps without a login. It decides who may pass, and identifies the
caller to the app.
"""
