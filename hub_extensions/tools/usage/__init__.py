"""``jupyterhub-gpu usage`` and ``audit``: export the history as CSV or JSON, and import logs of other schedulers.

The commands read the GPU service's database directly, not through the service's API. A million records would be too
many pages of an API that answers in the same loop as it admits servers. The database can also be read while no hub
runs. A user who may read its file, or knows its password, may read all of it anyway.
"""
