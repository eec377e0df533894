"""Access to outside systems, one folder for each. It converts their data to and from values of ``core``, and decides
nothing.
"""
