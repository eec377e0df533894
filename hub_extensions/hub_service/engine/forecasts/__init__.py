"""The wait forecast in the service: records, learning and computing."""
