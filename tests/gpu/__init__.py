"""Where a real card is: the product's readings beside nvidia-smi's. ``./scripts/test --gpu`` runs these too.

They only look, and run one small program on the card: MIG and every setting stay as they are.
"""
