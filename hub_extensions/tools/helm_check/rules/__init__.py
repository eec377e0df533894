"""The rules of ``helm check``, one module for each part of the values.

Each function ``check_…(release)`` yields a `Finding` for each mistake. A private function checks one subject for it.
"""
