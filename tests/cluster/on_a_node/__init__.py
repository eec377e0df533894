"""Tests on the one real node of this machine; they have it one after another, on one worker (lanes.py)."""
