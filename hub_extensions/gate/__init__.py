"""The gate: a process that a proxy asks whether a request may pass to an app (forward auth).

The apps have no login of their own. The gate also identifies the caller to the app.
"""
