from .notebook import tqdm

__all__ = ["tqdm"]
