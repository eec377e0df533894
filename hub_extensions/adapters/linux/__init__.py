"""The Linux machine: processes, sockets, supervision."""
