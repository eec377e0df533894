"""``jupyterhub-gpu usage`` and ``audit``: the history goes out as CSV or JSON, and other schedulers' logs come in.

They look into the store itself and not at the service's API. A million records are too many for pages of an API, whose
every answer the service has to make in the one loop that admits servers; a store also has its history while no hub
runs; and who may read its file, or knows the password of its database, may read all of it anyway.
"""
