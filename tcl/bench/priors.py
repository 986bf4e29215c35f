"""What `tcl bench tuning` lets a search know beforehand: models of the built-in dataset that never saw the tuned tasks.

kb   a knowledge base that learned the dataset's platforms one after the other (`tcl.continual`)
mlp  TenSet's kind of cost model, trained on all of them at once

Both learn from the same programs: those of all tasks but the tuned ones and their near-duplicates (`Task.group`).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tcl.progress import Progress

if TYPE_CHECKING:
    from tcl.programs.dataset import Dataset
    from tcl.programs.splits import Split

PRIORS = ("kb", "mlp")
VALID_SHARE = 0.1
EPOCHS = 8
"""Of a platform that is measured whole, as in `tcl bench continual`."""


def prior(name: str, subjects: Sequence[str], folder: Path, progress: Progress) -> Path:
    """The folder of one of `PRIORS`, trained there unless it is there already.

    Args:
        subjects: what will be tuned; no task of theirs is trained on.
        folder: kept between runs; another set of subjects makes another model in it.
    """
    from tcl.programs.dataset import Dataset
    from tcl.programs.types import content_id, format_id
    from tcl.workspace import BUILT_IN

    dataset = Dataset.open(BUILT_IN)
    split = without(dataset, subjects)
    key = format_id(content_id(name, dataset.version, *sorted(format_id(int(t)) for t, side in split.sides.items() if side == "test")))
    place = folder / f"{name}-{key}"
    if (place / "done").exists():
        return place
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    split.save(place / "split.json")
    (_knowledge_base if name == "kb" else _mlp)(dataset, split, place, progress)
    (place / "done").touch()
    return place


def priors(methods: Iterable[str], subjects: Sequence[str], folder: Path, progress: Progress) -> dict[str, str]:
    """Those of `PRIORS` that methods (STRATEGY/MODEL) ask for: name -> folder."""
    asked = {method.partition("/")[2] for method in methods}
    return {name: str(prior(name, subjects, folder, progress)) for name in PRIORS if name in asked}


def without(dataset: Dataset, subjects: Iterable[str]) -> Split:
    """A split by task whose test part is what `subjects` hold, near-duplicates included."""
    from tcl.programs.splits import Split, split_by_task
    from tcl.tuning.subject import subject

    groups = {task.group for text in subjects for task in subject(text).tasks}
    tasks = dataset.tasks()
    held_out = tasks["group"].isin(groups)
    sides = {int(t): "test" for t in tasks.loc[held_out, "task"]}
    rest = split_by_task(tasks[~held_out], 0, (1 - VALID_SHARE, VALID_SHARE, 0.0))
    return Split("task", 0, rest.fractions, rest.sides | sides, {"held out": sorted(subjects)})


def _knowledge_base(dataset: Dataset, split: Split, place: Path, progress: Progress) -> None:
    from tcl.continual.data import Choice, platform_data
    from tcl.continual.distill import Settings
    from tcl.continual.sequence import run_sequence

    choice = Choice(fraction=1.0, pool_per_assignment=64)
    order = sorted(dataset.platforms())
    run_sequence(order, lambda p: platform_data(dataset, p, split, choice), place, settings=Settings(epochs=EPOCHS), progress=progress)


def _mlp(dataset: Dataset, split: Split, place: Path, progress: Progress) -> None:
    from tcl.training.loop import Trainer
    from tcl.training.runs import Choice, train

    train(dataset, "mlp", Trainer(seed=0, progress=progress), Choice(split=str(place / "split.json")), out=place, test=False)
