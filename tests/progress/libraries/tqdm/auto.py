from .notebook import tqdm, trange

__all__ = ["tqdm", "trange"]
