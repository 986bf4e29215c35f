"""The knowledge base: one Mamba cost model of constant size that keeps what every platform taught, and its history.

Our reconstruction of the paper's knowledge base (its public text gives no sizes): a trunk shared by all platforms and a bank of a
fixed number of slots (`tcl.continual.slots`), all allocated from the start, so the size never depends on how many platforms were
learned. When the bank is full, a new platform shares the slot of the platform that its programs agree with most.

On disk it is a folder:

    knowledge_base.json        settings, platforms (slot, kind), history: what was learned, from how much, with which result
    weights-N.safetensors      trunk and bank after N platforms; written before the JSON that names it, so a kill leaves a whole one
    protection-N.safetensors   the Fisher information of online EWC; only needed to learn another platform
    model.json, weights.safetensors   the plain Mamba for the platform learned last (or `export`ed), for `tcl evaluate` and `tcl tune`
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tcl.continual.slots import Weights, empty_slot, fold
from tcl.errors import UserError
from tcl.features.vocabulary import VERSION
from tcl.files import load_tensors, write_json
from tcl.models.mamba import Mamba

CARD = "knowledge_base.json"
FORMAT = 1


@dataclass(frozen=True)
class Shape:
    """Sizes of the network and the bank. Width 44 instead of the cost model's 48 leaves room for the bank and the lateral connections
    within 0.8 MB; 5 slots of rank 3 take 0.12 MB."""

    width: int = 44
    layers: int = 2
    d_state: int = 16
    stride: int = 2
    expand: int = 2
    summary: int = 80
    rank: int = 3
    slots: int = 5

    def mamba(self, seed: int = 0) -> Mamba:
        return Mamba(
            seed=seed,
            width=self.width,
            layers=self.layers,
            d_state=self.d_state,
            stride=self.stride,
            expand=self.expand,
            summary=self.summary,
        )


@dataclass
class KnowledgeBase:
    """trunk: the shared weights; bank: name -> (slots, …) (see `tcl.continual.slots`); platforms: name -> {"slot", "kind"} in the order
    of learning; fisher: name -> like the trunk's tensor, empty before the first platform; history: one entry a learned platform."""

    shape: Shape
    trunk: Weights
    bank: Weights
    platforms: dict[str, dict[str, Any]] = field(default_factory=dict)
    fisher: Weights = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def new(cls, shape: Shape | None = None, seed: int = 0) -> KnowledgeBase:
        """An empty one. Its trunk is random until the first platform is consolidated."""
        shape = shape or Shape()
        if shape.slots < 1:
            raise UserError("A knowledge base needs at least one slot.")
        trunk = copied(shape.mamba(seed).network.state_dict())
        bank = {k: v.new_zeros(shape.slots, *v.shape) for k, v in empty_slot(trunk, shape.rank).items()}
        return cls(shape, trunk, copied(bank))

    def slot(self, platform: str) -> Weights:
        """The slot of a platform (views into the bank). Raises UserError for a platform that was not learned."""
        i = self.about(platform)["slot"]
        return {k: v[i] for k, v in self.bank.items()}

    def about(self, platform: str) -> dict[str, Any]:
        if platform not in self.platforms:
            known = ", ".join(self.platforms) or "none yet"
            raise UserError(f"The knowledge base has not learned {platform!r} (it knows: {known}).", hint="Learn it with `tcl distill`.")
        return self.platforms[platform]

    def weights(self, platform: str) -> Weights:
        """Trunk and slot of a platform as the weights of a plain Mamba."""
        return copied(fold(self.trunk, self.slot(platform)))

    def model(self, platform: str) -> Mamba:
        """The cost model of a platform, a plain Mamba."""
        model = self.shape.mamba()
        model.network.load_state_dict(self.weights(platform))
        return model

    def sharing(self, slot: int) -> list[str]:
        """The platforms that use this slot."""
        return [name for name, p in self.platforms.items() if p["slot"] == slot]

    def free_slot(self) -> int | None:
        taken = {p["slot"] for p in self.platforms.values()}
        return next((i for i in range(self.shape.slots) if i not in taken), None)

    def size_bytes(self) -> int:
        """Bytes of trunk and bank: what the knowledge base keeps. The same before and after any number of platforms."""
        return bytes_of(self.trunk) + bytes_of(self.bank)

    # -- on disk -------------------------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> None:
        """Write the whole knowledge base; a reader sees this state or the one before, never half of one."""
        from safetensors.torch import save_file

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        step = len(self.platforms)
        named = {"weights": {f"trunk.{k}": v for k, v in self.trunk.items()} | {f"bank.{k}": v for k, v in self.bank.items()}}
        named["protection"] = {k: v.half() for k, v in self.fisher.items()}
        for name, tensors in named.items():
            draft = folder / f".{name}-{step}.safetensors"
            save_file({k: v.detach().contiguous().clone() for k, v in tensors.items()}, draft)
            draft.replace(folder / f"{name}-{step}.safetensors")
        card = {"format": FORMAT, "features": VERSION, "shape": asdict(self.shape), "platforms": self.platforms, "history": self.history}
        write_json(folder / CARD, card | {"step": step})
        for name in named:
            for old in folder.glob(f"{name}-*.safetensors"):
                if old.name != f"{name}-{step}.safetensors":
                    old.unlink()
        if self.platforms:
            self.export(folder, list(self.platforms)[-1])

    def export(self, folder: str | Path, platform: str) -> None:
        """Write the plain Mamba of one platform (`model.json` and `weights.safetensors`), for `tcl evaluate` and `tcl tune`."""
        entry = next((h for h in reversed(self.history) if h.get("platform") == platform), {})
        self.model(platform).save(
            folder, {"platform": platform, "knowledge_base": list(self.platforms), "trained_on": entry.get("data", {})}
        )

    @classmethod
    def load(cls, folder: str | Path) -> KnowledgeBase:
        """The knowledge base that `save` wrote, on this machine or another. Raises UserError where there is none."""
        folder = Path(folder)
        try:
            card = json.loads((folder / CARD).read_text())
            if card["format"] != FORMAT or card["features"] != VERSION:
                raise UserError(f"{folder} was written by another version than this one reads.", hint="Learn its platforms again.")
            tensors = load_tensors(folder / f"weights-{card['step']}.safetensors")
            fisher = {k: v.float() for k, v in load_tensors(folder / f"protection-{card['step']}.safetensors").items()}
            trunk = {k[6:]: v for k, v in tensors.items() if k.startswith("trunk.")}
            bank = {k[5:]: v for k, v in tensors.items() if k.startswith("bank.")}
            return cls(Shape(**card["shape"]), copied(trunk), copied(bank), card["platforms"], copied(fisher), card["history"])
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(f"{folder} is not a knowledge base: it has no whole {CARD}.", hint="Make one with `tcl distill`.") from None
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise UserError(f"The knowledge base in {folder} cannot be read: {error}.") from None


def exists(folder: str | Path) -> bool:
    return (Path(folder) / CARD).exists()


def copied(weights: Weights) -> Weights:
    """Sorted by name, as a file of safetensors is: random draws and sums over a read one then come in the same order."""
    return {k: weights[k].detach().clone() for k in sorted(weights)}


def bytes_of(weights: Weights) -> int:
    return sum(v.numel() * v.element_size() for v in weights.values())
