"""``jupyterhub-gpu helm check``: what is wrong in values files, before the chart is upgraded."""
