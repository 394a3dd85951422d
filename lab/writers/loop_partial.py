"""Further ways to save a training of which only a part changes: all of it, or that part alone."""

from typing import Any, ClassVar

from safetensors.torch import load_file

from lab.writers import torch_savers
from lab.writers.loop import Window
from lab.writers.loop_peers import Peer, TorchSave
from lab.writers.saver import StorageSaver


class Rewriting(Window):
    """DeepFreeze that writes everything in each save, as it did before files were shared."""

    name = "df-rewrite"
    title = "DeepFreeze window, nothing shared"

    def options(self) -> dict[str, Any]:
        return {"reuse_unchanged": False}


class AdapterTorchSave(TorchSave):
    """The part of a state beside the frozen base: weights that train, and optimizer."""

    name = "adapter"
    title = "adapter and optimizer alone, torch.save + fsync"

    def values_of(self, training: Any, step: int) -> dict[str, Any]:
        whole = super().values_of(training, step)
        return {**whole, "model": training.parts.adapter.get(training.parts.model)}

    def restore(self, training: Any) -> None:
        found = self.loaded()
        training.parts.adapter.put(training.parts.model, found["model"])
        training.state["optim"].load_state_dict(found["optim"])


class AdapterSafetensors(Peer):
    """The weights that train, and nothing else: PEFT's save_pretrained() writes such a file."""

    name = "adapter-weights"
    title = "adapter weights alone, safetensors"
    synced = "nothing"
    kind: ClassVar[type[StorageSaver]] = torch_savers.Safetensors

    def values_of(self, training: Any, step: int) -> dict[str, Any]:
        found: dict[str, Any] = training.parts.adapter.get(training.parts.model)
        return {name: tensor.contiguous() for name, tensor in found.items()}

    def restore(self, training: Any) -> None:
        found = load_file(self.newest_saved())
        training.parts.adapter.put(training.parts.model, found)


# Others are compared with the first, in trainings that have something frozen.
ADAPTERS = (AdapterTorchSave, AdapterSafetensors)
