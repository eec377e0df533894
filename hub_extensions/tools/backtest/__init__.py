"""``jupyterhub-gpu forecast backtest``: replays a log of past sessions and compares each forecast with the real wait.

A session is one job or server that used GPUs. A pool is a number of equal GPUs that one line of users waits for. The
service's forecast is compared with simple methods of forecasting.
"""
