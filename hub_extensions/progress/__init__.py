"""Show the progress of a training in the GPU panel: a loop, a tqdm bar, Keras, Lightning, transformers or fastai.

A training writes a small file about itself, which the panel reads, also when the browser was closed meanwhile::

    from hub_extensions.progress import track

    for batch in track(loader, epochs=20, name="mnist"):    # all batches of 20 epochs
        train(batch)

    batches = track(loader, epochs=20, name="mnist")
    for epoch in batches.by_epoch():                        # with a loop over the epochs of your own
        for batch in batches:                               # the batches of one epoch
            train(batch)
        validate()

    %load_ext hub_extensions.progress                       # gives %%gpu_progress, for a cell that uses tqdm

The hooks of the libraries are modules of their own: ``hub_extensions.progress.keras`` (`KerasProgress`),
``.lightning`` (`LightningProgress`), ``.transformers`` (`TransformersProgress`) and ``.fastai`` (`FastaiProgress`).

This package needs Python 3.8 or newer and its standard library only. A kernel in an environment of its own, for example
one of conda, gets it by ``pip install`` of the small wheel that ``scripts/progress-wheel.py`` builds. The import name
is the same, so the same notebook runs in either environment. Do not install that wheel beside jupyterhub-gpu, which
contains this package.
"""

from __future__ import annotations

from typing import Any

from hub_extensions.progress.writer import ProgressRun, TrackedLoop, track

__all__ = ["ProgressRun", "TrackedLoop", "load_ipython_extension", "track"]


def load_ipython_extension(shell: Any) -> None:
    """Register the cell magic ``%%gpu_progress``; IPython calls this for ``%load_ext hub_extensions.progress``."""
    from hub_extensions.progress.tqdm import register

    register(shell)
