"""Access to systems outside this package (JupyterHub, Kubernetes, the NVIDIA driver, databases ...), one folder for
each.

It converts their data to and from values of ``core``, and decides nothing.
"""
