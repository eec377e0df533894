"""``jupyterhub-gpu helm check``: finds mistakes in Helm values files before they are used in an upgrade.

A finding is one such mistake, with its key and the fix. The values are those of the chart zero-to-jupyterhub.
"""
