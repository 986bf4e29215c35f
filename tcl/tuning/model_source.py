"""Where a network comes from: a name known here, a file that `torch.export.save` wrote, or an ONNX file.

    source = source_of("resnet18")        source = source_of("mine.pt2")        source = source_of("mine.onnx")
    mod, inputs = source.relax(), source.inputs()

To add a format: a subclass of `Source` with its suffix in `FILES`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcl.errors import UserError
from tcl.programs.types import Task
from tcl.tuning.networks import NETWORKS, extract, import_network, lower, network_tasks, torch_network

if TYPE_CHECKING:
    import numpy as np
    import torch
    from tvm.ir import IRModule


@dataclass(frozen=True)
class Source(ABC):
    """A network as its own framework has it. `text`: what the user wrote."""

    text: str

    @property
    def name(self) -> str:
        """The name under which a dataset knows the network."""
        return Path(self.text).stem if is_file(self.text) else self.text

    @abstractmethod
    def inputs(self) -> list[np.ndarray]:
        """Arguments in order."""

    @abstractmethod
    def relax(self) -> IRModule:
        """The network as TVM's relax, weights bound as constants."""

    @abstractmethod
    def runner(self) -> Callable[[], Sequence[np.ndarray]]:
        """A function that runs the network on `inputs` in its own framework and returns its outputs: what a tuned one must equal."""

    @abstractmethod
    def onnx(self, path: Path) -> None:
        """Write the network as an ONNX file."""

    @property
    @abstractmethod
    def framework(self) -> str:
        """A name of `tcl.tuning.baseline.RIVALS`: what `runner` runs on."""


class TorchSource(Source):
    """A network by name."""

    framework = "pytorch"

    @cached_property
    def torch(self) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
        """The module in inference mode, and its inputs.

        Raises:
            UserError: an unknown name; a file that is no exported program, or was saved without example inputs.
        """
        return torch_network(self.text)

    def inputs(self) -> list[np.ndarray]:
        return [x.numpy() for x in self.torch[1]]

    def relax(self) -> IRModule:
        return import_network(*self.torch)

    def runner(self) -> Callable[[], Sequence[np.ndarray]]:
        import torch

        model, inputs = self.torch

        def run() -> Sequence[np.ndarray]:
            with torch.inference_mode():
                output = model(*inputs)
            return [output.numpy()] if isinstance(output, torch.Tensor) else [o.numpy() for o in output]

        return run

    def onnx(self, path: Path) -> None:
        export_onnx(*self.torch, path)


class ExportedSource(TorchSource):
    """A `.pt2` file of torch.export.save."""

    @cached_property
    def torch(self) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
        import torch

        try:
            exported = torch.export.load(self.text)
        except Exception as error:  # torch raises whatever its parsers raise
            line = str(error).strip().splitlines()
            what = line[0] if line else type(error).__name__
            raise UserError(f"{self.text} is not a program that torch.export.save wrote: {what}.") from None
        if exported.example_inputs is None:
            raise UserError(f"{self.text} holds no example inputs.", hint="Save it again with torch.export.save, which keeps them.")
        inputs, keywords = exported.example_inputs
        if keywords or not all(isinstance(x, torch.Tensor) for x in inputs):
            raise UserError(
                f"{self.text} takes other arguments than tensors by position.", hint="Wrap the model in a module whose forward does."
            )
        return exported.module(), tuple(inputs)


class OnnxSource(Source):
    """An ONNX file. A free first dimension of an input is the batch, and 1; inputs are random (seed 0)."""

    framework = "onnxruntime"

    @cached_property
    def model(self) -> Any:
        """The checked model, its free batch dimensions set to 1.

        Raises:
            UserError: no ONNX model, or inputs of other free dimensions.
        """
        import onnx

        try:
            model = onnx.load(self.text)
            onnx.checker.check_model(model)
        except Exception as error:  # protobuf and the checker raise their own kinds
            line = str(error).strip().splitlines()
            raise UserError(f"{self.text} is not an ONNX model: {line[0][:200] if line else type(error).__name__}.") from None
        weights = {w.name for w in model.graph.initializer}
        for argument in [v for v in model.graph.input if v.name not in weights]:
            kind = argument.type.tensor_type
            if not kind.HasField("shape"):
                raise UserError(f"{self.text}: its input {argument.name} is no tensor of a known shape.")
            for axis, dim in enumerate(kind.shape.dim):
                if dim.dim_value > 0:
                    continue
                if axis:
                    free = dim.dim_param or "?"
                    raise UserError(
                        f"{self.text}: dimension {axis} of its input {argument.name} is free ({free}).",
                        hint=f"Fix it: python -m onnxruntime.tools.make_dynamic_shape_fixed --dim_param {free} --dim_value N IN OUT.",
                    )
                dim.Clear()
                dim.dim_value = 1
        return model

    @property
    def arguments(self) -> list[tuple[str, tuple[int, ...], np.dtype]]:
        """(name, shape, dtype) of the inputs that are no weights."""
        import onnx

        weights = {w.name for w in self.model.graph.initializer}
        found = []
        for value in self.model.graph.input:
            if value.name not in weights:
                kind = value.type.tensor_type
                shape = tuple(d.dim_value for d in kind.shape.dim)
                found.append((value.name, shape, onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)))
        return found

    def inputs(self) -> list[np.ndarray]:
        import numpy as np

        rng = np.random.default_rng(0)
        # integers are indices or masks: 0 and 1 are both, for any table
        return [
            rng.standard_normal(shape).astype(dtype) if np.issubdtype(dtype, np.floating) else rng.integers(0, 2, shape).astype(dtype)
            for _, shape, dtype in self.arguments
        ]

    def relax(self) -> IRModule:
        from tvm.relax.frontend.onnx import from_onnx

        shapes = {name: list(shape) for name, shape, _ in self.arguments}
        types = {name: str(dtype) for name, _, dtype in self.arguments}
        try:
            return from_onnx(self.model, shape_dict=shapes, dtype_dict=types, keep_params_in_input=False)
        except Exception as error:  # operators that TVM's importer does not know, in its own words
            line = str(error).strip().splitlines()
            raise UserError(f"{self.text}: TVM's importer does not read it: {line[-1][:200] if line else type(error).__name__}.") from None

    def runner(self) -> Callable[[], Sequence[np.ndarray]]:
        from tcl.tuning.baseline import onnxruntime_runner

        return onnxruntime_runner(self.model.SerializeToString(), self.inputs())

    def onnx(self, path: Path) -> None:
        path.write_bytes(self.model.SerializeToString())


FILES: dict[str, type[Source]] = {".pt2": ExportedSource, ".onnx": OnnxSource}
"""Suffix -> what reads it."""


def source_of(text: str) -> Source:
    """The network that `text` names. Raises UserError for an unknown name or a missing file; other errors when it is read."""
    if not is_file(text):
        return TorchSource(text)
    check_file(text)
    return FILES[Path(text).suffix](text)


def is_file(text: str) -> bool:
    """Whether `text` means a file rather than a name."""
    return Path(text).suffix in FILES


def check_file(text: str) -> None:
    """Raise UserError for a path that cannot be a network."""
    if not Path(text).is_file():
        raise UserError(f"There is no file {text}.")


def tasks_of(text: str) -> list[Task]:
    """The distinct tasks of a network, heaviest first."""
    if text in NETWORKS:
        return network_tasks(text)
    source = source_of(text)
    return extract(source.name, lower(source.relax(), {"kind": "llvm", "num-cores": 2}))


def name_of(text: str) -> str:
    """The name under which a dataset knows the network."""
    return source_of(text).name if is_file(text) else text


def export_onnx(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...], path: Path) -> None:
    """Write a PyTorch module as ONNX. PyTorch's older exporter, which traces: the newer one needs another package."""
    import warnings

    import torch

    with warnings.catch_warnings(), torch.inference_mode():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, inputs, str(path), dynamo=False)
