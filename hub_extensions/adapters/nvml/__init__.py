"""NVIDIA's library: a whole machine's GPUs (``reader.py``), and those of one container (``container.py``)."""
