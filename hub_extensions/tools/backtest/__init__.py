"""``jupyterhub-gpu forecast backtest``: replay a log and compare each forecast with the real wait."""
