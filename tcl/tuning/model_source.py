"""Where a network comes from: a name known here, or a file that `torch.export.save` wrote.

    model, inputs = model_of("resnet18")        model, inputs = model_of("mine.pt2")
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tcl.errors import UserError
from tcl.programs.types import Task
from tcl.tuning.networks import NETWORKS, extract, import_network, lower, network_tasks, torch_network

if TYPE_CHECKING:
    import torch

SUFFIXES = (".pt2",)


def is_file(source: str) -> bool:
    """Whether `source` means a file rather than a name."""
    return Path(source).suffix in SUFFIXES


def check_file(source: str) -> None:
    """Raise UserError for a path that cannot be a network."""
    if Path(source).suffix == ".onnx":
        raise UserError(
            f"{source}: ONNX files are not read.",
            hint="Export the PyTorch model instead: torch.export.save(torch.export.export(model, inputs), 'model.pt2').",
        )
    if not Path(source).is_file():
        raise UserError(f"There is no file {source}.")


def model_of(source: str) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """The network in inference mode and inputs for it.

    Raises:
        UserError: an unknown name; a file that is no exported program, or was saved without example inputs.
    """
    if not is_file(source):
        return torch_network(source)
    import torch

    check_file(source)
    try:
        exported = torch.export.load(source)
    except Exception as error:  # torch raises whatever its parsers raise
        line = str(error).strip().splitlines()
        raise UserError(f"{source} is not a program that torch.export.save wrote: {line[0] if line else type(error).__name__}.") from None
    if exported.example_inputs is None:
        raise UserError(f"{source} holds no example inputs.", hint="Save it again with torch.export.save, which keeps them.")
    inputs, keywords = exported.example_inputs
    if keywords or not all(isinstance(x, torch.Tensor) for x in inputs):
        raise UserError(f"{source} takes other arguments than tensors by position.", hint="Wrap the model in a module whose forward does.")
    return exported.module(), tuple(inputs)


def tasks_of(source: str) -> list[Task]:
    """The distinct tasks of a network, heaviest first."""
    if source in NETWORKS:
        return network_tasks(source)
    return extract(name_of(source), lower(import_network(*model_of(source)), {"kind": "llvm", "num-cores": 2}))


def name_of(source: str) -> str:
    """The name under which a dataset knows the network."""
    return Path(source).stem if is_file(source) else source
