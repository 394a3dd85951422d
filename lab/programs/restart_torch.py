"""PyTorch: a loop of its own, and its writers."""

import importlib
import pickle
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.utils.data import TensorDataset

import deepfreeze as df
from examples.digest import seed_generators
from examples.loader import endless, resumable_loader
from lab.programs.restart_job import DATA, IN_BACKWARD, MODEL, OPTIMIZER, RNG, SCHEDULER, Job
from lab.programs.restart_protocol import (
    Array,
    ByDeepFreeze,
    Entries,
    Stepped,
    Task,
    Voice,
    flat,
    newest,
    rows,
    run_loop,
)

dcp: Any = importlib.import_module("torch.distributed.checkpoint")

PACKAGES = ("torch", "torchdata", "deepfreeze-checkpoint")

df.determinism(0)  # Own seeds anew. Imports for a second: once, not in each process


def falling(step: int) -> float:
    return float(Task.DECAY**step)


class TorchRng:
    """What dropout draws from."""

    def state_dict(self) -> dict[str, Any]:
        return {"torch": torch.get_rng_state()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        torch.set_rng_state(state["torch"])


class Own:
    """One optimizer; in backward, one for each parameter."""

    def __init__(self, seed: int, data_seed: int, *, in_backward: bool) -> None:
        seed_generators(seed)
        self.net = nn.Sequential(
            nn.Linear(Task.WIDTH, Task.HIDDEN), nn.BatchNorm1d(Task.HIDDEN), nn.ReLU(),
            nn.Dropout(Task.DROPOUT), nn.Linear(Task.HIDDEN, 1),
        )  # fmt: skip
        trained = list(self.net.parameters())
        groups = [[each] for each in trained] if in_backward else [trained]
        self.optimizers = [torch.optim.SGD(group, Task.RATE, Task.MOMENTUM) for group in groups]
        self.schedulers = [
            torch.optim.lr_scheduler.LambdaLR(each, falling) for each in self.optimizers
        ]
        self.in_backward = in_backward
        for group, optimizer in zip(groups if in_backward else [], self.optimizers, strict=False):
            group[0].register_post_accumulate_grad_hook(lambda _, own=optimizer: own.step())
        x, y = map(torch.from_numpy, rows(data_seed))
        numbered = TensorDataset(x, y, torch.arange(len(x)))
        self.loader = resumable_loader(numbered, Task.BATCH, seed)
        self.batches = endless(self.loader)
        self.last = torch.empty(0)

    def parts(self) -> dict[str, Any]:
        return {
            MODEL: self.net, OPTIMIZER: self.optimizers, SCHEDULER: self.schedulers,
            RNG: TorchRng(), DATA: self.loader,
        }  # fmt: skip

    def train_step(self) -> float:
        x, y, self.last = next(self.batches)
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        loss: Tensor = nn.functional.mse_loss(self.net(x), y)
        loss.backward()
        for optimizer in [] if self.in_backward else self.optimizers:
            optimizer.step()
        for scheduler in self.schedulers:
            scheduler.step()
        return loss.item()

    def entries(self) -> Entries:
        """The place in the data is what is drawn next: restart.py compares the batches."""
        states = {name: state_of(part) for name, part in self.parts().items() if name != DATA}
        for path, value in flat(states, ""):
            yield path[1:], value.numpy() if isinstance(value, Tensor) else value

    def batch(self) -> Array:
        found: Array = self.last.numpy()
        return found

    def skip(self) -> None:
        next(self.batches)


def state_of(part: Any) -> Any:
    if isinstance(part, list):
        return [each.state_dict() for each in part]
    return part.state_dict()


def load(part: Any, state: Any) -> None:
    for one, found in zip(part, state, strict=True) if isinstance(part, list) else [(part, state)]:
        one.load_state_dict(found)


class Files(Stepped):
    """The base of the writers below: the parts that are saved."""

    def __init__(self, training: Own, job: Job) -> None:
        super().__init__(training, job)
        self.parts = {name: part for name, part in training.parts().items() if name in job.saved}


class TorchSave(Files):
    def save(self, step: int) -> None:
        states = {name: state_of(part) for name, part in self.parts.items()}
        torch.save(states, self.job.place / f"step-{step}.pt")

    def restore(self) -> int:
        step, path = newest(self.job.place, "step-*.pt")
        loaded = torch.load(path)
        for name, part in self.parts.items():
            load(part, loaded[name])
        return step


class Dcp(Files):
    """torch.distributed.checkpoint. All but tensors of model and optimizer is one value for it."""

    def state(self) -> dict[str, Any]:
        training = self.training
        model, optimizer = get_state_dict(training.net, training.optimizers)
        rest = {name: state_of(self.parts[name]) for name in (SCHEDULER, RNG, DATA)}
        return {MODEL: model, OPTIMIZER: optimizer, "rest": pickle.dumps(rest)}

    def save(self, step: int) -> None:
        dcp.save(self.state(), checkpoint_id=self.job.place / f"step-{step}", no_dist=True)

    def restore(self) -> int:
        step, path = newest(self.job.place, "step-*")
        state = self.state()
        dcp.load(state, checkpoint_id=path, no_dist=True)
        training = self.training
        set_state_dict(
            training.net, training.optimizers,
            model_state_dict=state[MODEL], optim_state_dict=state[OPTIMIZER],
        )  # fmt: skip
        for name, found in pickle.loads(state["rest"]).items():
            load(self.parts[name], found)
        return step


class DeepFreeze(ByDeepFreeze):
    """The optimizers are attached: training goes on while they are copied."""

    def __init__(self, training: Own, job: Job) -> None:
        super().__init__(training, job, {**training.parts(), RNG: df.RNG()})
        for optimizer in training.optimizers:
            mode = "after_update" if training.in_backward else "window"
            self.checkpointer.attach(optimizer, mode)  # type: ignore[arg-type]


WRITERS = {"torch-save": TorchSave, "dcp": Dcp, "df": DeepFreeze, "df-in-backward": DeepFreeze}


def run(job: Job, data_seed: int, voice: Voice) -> None:
    torch.set_num_threads(job.threads)
    training = Own(job.seed, data_seed, in_backward=job.variant == IN_BACKWARD)
    run_loop(job, voice, training, WRITERS[job.writer](training, job) if job.writer else None)
