"""Networks -> tasks: PyTorch models with random weights, through torch.export and relax.

    network_tasks("resnet18")  ->  its tasks, each with how often the network holds it

`import_network` and `lower` are the two halves that an end-to-end build shares with the extraction: they must be the same
passes in the same order, or the tuned schedules would not find their subgraphs again.

Choices, and why:
- Batch normalisation is folded into the convolution before it (inference only), as every deployment does.
- Convolutions run in NHWC with HWIO weights: output channels are contiguous and vectorise at any image size, where NCHW
  leaves rows of 7 or 14. Weights are transposed once, at compile time.
- `clip` (ReLU6) is written as minimum and maximum, because relax's layout pass knows those and not `clip`: otherwise
  MobileNetV2 is cut into 62 tasks half of which only transpose.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tcl.errors import UserError
from tcl.programs.types import NetworkUse, Task, content_id, format_id
from tcl.tuning.workload import make_task, normalise
from tcl.workspace import workspace

if TYPE_CHECKING:
    import torch
    from tvm.ir import IRModule

LOWERING = 5
"""Raised whenever the passes below change, so that cached tasks are extracted again."""


def _resnet(**config: Any) -> Callable[[], tuple[torch.nn.Module, tuple[torch.Tensor, ...]]]:
    def build() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
        import torch
        from transformers import ResNetConfig, ResNetForImageClassification

        return ResNetForImageClassification(ResNetConfig(num_labels=1000, **config)), (torch.randn(1, 3, 224, 224),)

    return build


def _mobilenet_v2() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    import torch
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    # tf_padding=False: symmetric padding inside the convolutions, as in torchvision's MobileNetV2
    return MobileNetV2ForImageClassification(MobileNetV2Config(num_labels=1000, tf_padding=False)), (torch.randn(1, 3, 224, 224),)


def _bert(tokens: int, **config: Any) -> Callable[[], tuple[torch.nn.Module, tuple[torch.Tensor, ...]]]:
    def build() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
        import torch
        from transformers import BertConfig, BertModel

        # plain matrix products and softmax: a fused attention operator has no schedule to tune
        model = BertModel(BertConfig(attn_implementation="eager", **config), add_pooling_layer=False)
        return model, (torch.randint(0, 30000, (1, tokens)),)

    return build


def _resnext50() -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    import torch

    from tcl.tuning.resnext import resnext50

    return resnext50(), (torch.randn(1, 3, 224, 224),)


NETWORKS: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {
    "resnet18": _resnet(embedding_size=64, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic"),
    "resnet50": _resnet(),
    "resnext50": _resnext50,
    "mobilenet_v2": _mobilenet_v2,
    "bert_tiny": _bert(128, hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512),
    "bert_base": _bert(128),
}
"""Batch 1; images of 224x224; BERT reads 128 tokens."""


def torch_network(name: str) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...]]:
    """The network in inference mode with random weights (seed 0), and inputs for it: a module that returns one tensor.

    Raises:
        UserError: the network is not known.
    """
    import torch

    if name not in NETWORKS:
        raise UserError(f"{name!r} is not a network known here.", hint=f"Known: {', '.join(NETWORKS)}.")
    torch.manual_seed(0)
    model, inputs = NETWORKS[name]()
    _fold_batch_norm(model.eval())

    class OneOutput(torch.nn.Module):
        def __init__(self, inner: torch.nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = self.inner(x)
            if isinstance(out, torch.Tensor):
                return out
            return out.logits if "logits" in out else out.last_hidden_state

    return OneOutput(model).eval(), inputs


def import_network(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> IRModule:
    """A PyTorch module as relax, weights bound as constants."""
    import torch
    from tvm.relax.frontend.torch import from_exported_program

    with torch.no_grad():
        exported = torch.export.export(model, inputs)
    return from_exported_program(exported, keep_params_as_input=False, unwrap_unit_return_tuple=True)


def lower(mod: IRModule, target: Any) -> IRModule:
    """Relax operators -> fused tensor functions: the form from which tasks are extracted and to which schedules are applied."""
    import tvm
    from tvm import relax

    passes = [
        relax.transform.DecomposeOpsForInference(),
        relax.transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "HWIO"]}),
        relax.transform.FoldConstant(),
        relax.get_pipeline("zero"),
    ]
    with tvm.target.Target(target):
        return tvm.ir.transform.Sequential(passes)(_clip_as_min_max(mod))


def network_tasks(name: str) -> list[Task]:
    """The distinct tasks of a network, heaviest (weight x flops) first. Extraction takes 10 s and more, so the workspace
    keeps the result by the network's name and the versions of what made it."""
    versions = {p: importlib.metadata.version(p) for p in ("apache-tvm", "torch", "transformers")}
    key = format_id(content_id(name, json.dumps(versions), str(LOWERING)))
    cache = workspace() / "cache" / "tasks" / f"{name}-{key}.json"
    if name in NETWORKS and cache.exists():
        rows = json.loads(cache.read_text())
        return [Task(**{**r, "extents": tuple(r["extents"]), "networks": tuple(NetworkUse(**u) for u in r["networks"])}) for r in rows]
    tasks = extract(name, lower(import_network(*torch_network(name)), {"kind": "llvm", "num-cores": 2}))
    cache.parent.mkdir(parents=True, exist_ok=True)
    draft = cache.with_suffix(".draft")
    draft.write_text(json.dumps([asdict(t) for t in tasks]))
    draft.replace(cache)
    return tasks


def extract(name: str, lowered: IRModule) -> list[Task]:
    """The distinct tasks of a lowered network called `name`."""
    import tvm
    from tvm.s_tir.meta_schedule.relax_integration import extract_tasks

    found: dict[str, Task] = {}
    for extracted in extract_tasks(lowered, tvm.target.Target({"kind": "llvm", "num-cores": 2})):
        mod = extracted.dispatched[0]
        weight = float(extracted.weight)
        text = normalise(mod)
        if text in found:
            weight += found[text].networks[0].weight
        found[text] = make_task(mod, networks=(NetworkUse(name, weight),))
    return sorted(found.values(), key=lambda t: -t.flops * t.networks[0].weight)


def _fold_batch_norm(model: Any) -> None:
    """Fold each `normalization` into the `convolution` beside it (the names transformers uses in all its image networks)."""
    import torch
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    for module in list(model.modules()):
        conv, norm = getattr(module, "convolution", None), getattr(module, "normalization", None)
        if isinstance(conv, torch.nn.Conv2d) and isinstance(norm, torch.nn.BatchNorm2d):
            module.convolution, module.normalization = fuse_conv_bn_eval(conv, norm), torch.nn.Identity()


def _clip_as_min_max(mod: IRModule) -> IRModule:
    from tvm import relax
    from tvm.relax.expr_functor import PyExprMutator, mutator

    @mutator
    class ClipAsMinMax(PyExprMutator):
        def visit_call_(self, call: Any) -> Any:  # the functor's name for the hook
            call = self.visit_expr_post_order(call)
            if getattr(call.op, "name", "") != "relax.clip":
                return call
            x, low, high = call.args
            bounds = [relax.const(float(getattr(b.value, "value", b.value)), "float32") for b in (low, high)]
            return relax.op.minimum(relax.op.maximum(x, bounds[0]), bounds[1])

    rewriter = ClipAsMinMax(mod)
    for variable, function in mod.functions_items():
        if isinstance(function, relax.Function):
            rewriter.builder_.update_func(variable, rewriter.visit_expr(function))
    return rewriter.builder_.get()
