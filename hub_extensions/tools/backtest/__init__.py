"""``jupyterhub-gpu forecast backtest``: a log is replayed, and every forecast compared with what came true."""
