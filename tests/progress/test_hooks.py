"""Each library's hook reports the steps, the total and the end of a training; stand-ins call it as the library does."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hub_extensions.progress import ProgressRun
from tests.progress.files import read_run, read_runs

pytestmark = pytest.mark.usefixtures("libraries")
Report = Callable[..., dict[str, Any]]


@pytest.fixture
def report(folder: Path) -> Report:
    """Some fields of the only run."""

    def read(*fields: str) -> Any:
        run = read_run(folder)
        return tuple(run[field] for field in fields)

    return read


FIELDS = ("state", "steps", "start", "total", "epochs", "epoch_steps", "patience")


def keras(losses: Any = (), **compiled: Any) -> tuple[Any, Any]:
    import keras

    from hub_extensions.progress.keras import KerasProgress

    model = keras.Sequential(losses=losses)
    model.compile(**compiled)
    return model, KerasProgress("mnist")


def test_keras(report: Report) -> None:
    model, progress = keras()
    model.fit([0] * 100, [0] * 100, epochs=4, batch_size=10, callbacks=[progress], validation_data=())
    assert report("name", "library") == ("mnist", "keras")
    assert report(*FIELDS) == ("done", 40, 0, 40, 4, 10, None)


def test_keras_does_not_know_the_steps_of_the_first_epoch(folder: Path, report: Report) -> None:
    model, progress = keras()
    totals = []

    class Batches:
        def __iter__(self) -> Iterator[int]:
            totals.append(progress.run.total)
            return iter(range(10))

    model.fit(Batches(), epochs=4, initial_epoch=1, callbacks=[progress])
    assert totals == [None, 40, 40]
    assert report(*FIELDS) == ("done", 30, 10, 40, 4, 10, None)


def test_keras_resumes_at_an_epoch(report: Report) -> None:
    model, progress = keras()
    model.fit([0] * 100, [0] * 100, epochs=4, initial_epoch=3, batch_size=10, callbacks=[progress])
    assert report(*FIELDS) == ("done", 10, 30, 40, 4, 10, None)


def test_keras_runs_several_steps_at_once(report: Report) -> None:
    model, progress = keras(steps_per_execution=4)
    model.fit([0] * 100, [0] * 100, epochs=2, batch_size=10, callbacks=[progress])
    assert report(*FIELDS) == ("done", 20, 0, 20, 2, 10, None)


def test_keras_stops_early(report: Report) -> None:
    from keras.callbacks import EarlyStopping, ReduceLROnPlateau

    model, progress = keras(losses=[3, 2, 1, 1, 1])
    callbacks = [progress, ReduceLROnPlateau(patience=1), EarlyStopping(patience=2)]
    model.fit([0] * 100, [0] * 100, epochs=40, batch_size=10, validation_data=(), callbacks=callbacks)
    assert report(*FIELDS) == ("done", 50, 0, 400, 40, 10, 2)


def test_an_exception_of_keras_passes_and_the_next_run_ends_the_last(folder: Path) -> None:
    model, progress = keras()

    class Broken:
        def __iter__(self) -> Iterator[int]:
            raise MemoryError("mine")

    with pytest.raises(MemoryError, match="mine"):
        model.fit(Broken(), callbacks=[progress])
    model.fit([0], [0], callbacks=[progress])
    assert [run["state"] for run in read_runs(folder)] == ["left", "done"]


def lightning(*callbacks: Any, **chosen: Any) -> tuple[Any, type]:
    from lightning.pytorch import Trainer
    from lightning.pytorch.demos.boring_classes import BoringModel

    from hub_extensions.progress.lightning import LightningProgress

    return Trainer(callbacks=[LightningProgress("mnist"), *callbacks], **chosen), BoringModel


@pytest.mark.parametrize(
    ("chosen", "module", "reported"),
    [
        ({"max_epochs": 2}, {}, ("done", 20, 0, 20, 2, 10, None)),
        ({"max_epochs": -1, "max_steps": 15}, {}, ("done", 15, 0, 15, None, 10, None)),
        ({"max_steps": 3, "accumulate_grad_batches": 2}, {}, ("done", 6, 0, 6, None, 10, None)),
        ({"max_epochs": 1, "max_steps": 300}, {}, ("done", 10, 0, 10, 1, 10, None)),
        ({"max_epochs": 2}, {"endless": True}, ("done", 20, 0, None, 2, None, None)),
        ({"max_epochs": 2}, {"first_batch": 4}, ("done", 16, 4, 20, 2, 10, None)),
    ],
)
def test_lightning(report: Report, chosen: Any, module: Any, reported: Any) -> None:
    trainer, model = lightning(**chosen)
    trainer.fit(model(batches=10, **module))
    assert report("name", "library") == ("mnist", "lightning")
    assert report(*FIELDS) == reported


def test_lightning_goes_on_at_an_epoch(report: Report) -> None:
    trainer, model = lightning(max_epochs=3)
    trainer.current_epoch = 2
    trainer.fit(model(batches=10))
    assert report(*FIELDS) == ("done", 10, 20, 30, 3, 10, None)


def test_lightning_without_an_end_is_unknown(folder: Path, report: Report) -> None:
    from lightning.pytorch.callbacks import EarlyStopping

    trainer, model = lightning(EarlyStopping("loss", patience=4, stop_after=2), max_epochs=-1)
    trainer.fit(model(batches=10))
    assert report(*FIELDS) == ("done", 20, 0, None, None, 10, 4)


@pytest.mark.parametrize(("problem", "state"), [(ValueError, "failed"), (KeyboardInterrupt, "left")])
def test_lightning_reports_an_exception(report: Report, problem: Any, state: str) -> None:
    trainer, model = lightning(max_epochs=3)
    broken = model(batches=10)
    broken.training_step = lambda batch, index: (_ for _ in ()).throw(problem()) if index == 4 else None
    try:
        trainer.fit(broken)
    except problem:
        assert problem is ValueError
    assert report("state", "steps") == (state, 4)


def test_another_rank_of_lightning_writes_nothing(folder: Path) -> None:
    trainer, model = lightning(max_epochs=1)
    trainer.is_global_zero = False
    trainer.fit(model(batches=10))
    assert read_runs(folder) == []


def transformers(*callbacks: Any, model: Any = None, **chosen: Any) -> Any:
    from transformers import Trainer, TrainingArguments

    from hub_extensions.progress.transformers import TransformersProgress

    args = TrainingArguments("", per_device_train_batch_size=10, **chosen)
    return Trainer(model, args, train_dataset=[0] * 95, callbacks=[TransformersProgress("bert"), *callbacks])


@pytest.mark.parametrize(
    ("chosen", "resumed", "reported"),
    [
        ({"num_train_epochs": 3.0}, 0, ("done", 30, 0, 30, 3, 10, None)),
        ({"num_train_epochs": 0.5}, 0, ("done", 5, 0, 5, 1, 5, None)),
        ({"max_steps": 25, "eval_strategy": "epoch"}, 0, ("done", 25, 0, 25, 3, 8, None)),
        ({"num_train_epochs": 3.0}, 12, ("done", 18, 12, 30, 3, 10, None)),
    ],
)
def test_transformers(report: Report, chosen: Any, resumed: int, reported: Any) -> None:
    transformers(**chosen).train(resume_from_checkpoint=resumed)
    assert report("name", "library") == ("bert", "transformers")
    assert report(*FIELDS) == reported


def test_transformers_stops_early(report: Report) -> None:
    from transformers import EarlyStoppingCallback

    stopping = EarlyStoppingCallback(early_stopping_patience=2, stop_after=20)
    transformers(stopping, num_train_epochs=9, eval_strategy="epoch").train()
    assert report(*FIELDS) == ("done", 20, 0, 90, 9, 10, 2)


def test_an_exception_of_transformers_passes(folder: Path, report: Report) -> None:
    def at_step(step: int) -> None:
        if step == 7:
            raise ValueError("mine")

    trainer = transformers(model=SimpleNamespace(at_step=at_step))
    with pytest.raises(ValueError, match="mine"):
        trainer.train()
    del trainer
    gc.collect()
    assert report("state", "steps") == ("left", 6)  # in a notebook: failed


def fastai(*callbacks: Any, **chosen: Any) -> Any:
    from fastai.test_utils import synth_learner

    from hub_extensions.progress.fastai import FastaiProgress

    return synth_learner(cbs=[FastaiProgress("pets"), *callbacks], **chosen)


def test_fastai(report: Report) -> None:
    fastai(n_trn=5).fit(3)
    assert report("name", "library") == ("pets", "fastai")
    assert report(*FIELDS) == ("done", 15, 0, 15, 3, 5, None)


def test_fastai_resumes_at_an_epoch(report: Report) -> None:
    fastai(n_trn=5).fit(3, start_epoch=2)
    assert report(*FIELDS) == ("done", 5, 10, 15, 3, 5, None)


def test_fastai_stops_early(report: Report) -> None:
    from fastai.callback.core import EarlyStoppingCallback

    fastai(EarlyStoppingCallback(patience=2, stop_after=3), n_trn=5).fit(9)
    assert report(*FIELDS) == ("done", 15, 0, 45, 9, 5, 2)


def test_a_search_for_the_learning_rate_is_no_training(folder: Path) -> None:
    learner = fastai(n_trn=5)
    learner.lr_find()
    assert read_runs(folder) == []
    learner.fit(1)
    learner.lr_find()
    assert len(read_runs(folder)) == 1


def test_a_validation_of_fastai_is_no_training(folder: Path) -> None:
    learner = fastai(n_trn=5)
    learner.validate()
    assert read_runs(folder) == []
    learner.fit(1)
    learner.validate()
    assert [run["steps"] for run in read_runs(folder)] == [5]


@pytest.mark.parametrize("event", ["before_train", "after_train"])
def test_a_validation_inside_a_fit_of_fastai_belongs_to_it(report: Report, event: str) -> None:
    from fastai.callback.core import Callback

    def validate() -> None:
        callback.learn.validate()

    callback = Callback()
    setattr(callback, event, validate)
    fastai(callback, n_trn=5).fit(3)
    assert report(*FIELDS) == ("done", 15, 0, 15, 3, 5, None)


def test_a_fit_after_one_that_an_exception_ended_is_another_run(folder: Path) -> None:
    from fastai.callback.core import Callback

    class Broken(Callback):  # type: ignore[misc]
        fails = True

        def before_validate(self) -> None:
            if self.fails:
                raise ValueError("mine")

    broken = Broken()
    learner = fastai(broken, n_trn=5)
    with pytest.raises(ValueError, match="mine"):
        learner.fit(3)
    broken.fails = False
    learner.fit(3)
    assert [(run["state"], run["steps"]) for run in read_runs(folder)] == [("left", 5), ("done", 15)]


def test_a_callback_can_be_copied_and_saved_while_it_reports(folder: Path) -> None:
    _, progress = keras()
    progress.run = ProgressRun("mine")
    for copied in (copy.deepcopy(progress), pickle.loads(pickle.dumps(progress))):
        assert (copied.run, copied.run_name) == (None, "mnist")
    assert read_run(folder)["state"] == "running"


@pytest.mark.parametrize("library", ["keras", "lightning", "transformers", "fastai"])
def test_a_hook_that_cannot_do_its_work_disturbs_nothing(folder: Path, library: str) -> None:
    module = __import__(f"hub_extensions.progress.{library}", fromlist=["*"])
    [hook] = [kind for name, kind in vars(module).items() if name.endswith("Progress")]
    called = hook("name")
    for name in [name for name in vars(hook) if name.startswith(("on_", "before_", "after_"))]:
        getattr(called, name)(*[None] * (len(inspect.signature(getattr(hook, name)).parameters) - 1))
    del called
    assert [run["steps"] for run in read_runs(folder)] in ([], [0])
