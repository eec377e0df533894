"""The gate: a process of its own before apps without a login, which says who may pass and tells the app who it is.

Not here: what is answered and why (``core/sign_on/access.py``), and the proxies' configuration.
"""
