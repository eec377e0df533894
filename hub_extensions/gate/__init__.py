"""The gate: a process that a proxy asks whether a request may pass to an app without a login. It also identifies the
caller to the app.
"""
