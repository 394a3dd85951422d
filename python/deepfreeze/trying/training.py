"""The training of `deepfreeze try`, a process of its own: `training STEPS SEED [RUN]`.

Two spirals are told apart by a small network. With RUN each step is saved there, and the training
goes on from the newest checkpoint. It prints a JSON object in a line for each event: "started",
"step", and "ended" with a digest (Training.digest()).
"""

from __future__ import annotations

import hashlib
import json
import sys

import torch

import deepfreeze as df

POINTS = 1000
BATCH = 64
SAVED_EVERY = 1000  # steps, of which one stays, beside the last ones


class Training:
    """Shuffled batches and dropout: a resumed one is the same only if its generator is, too."""

    def __init__(self, seed: int) -> None:
        torch.manual_seed(seed)
        self.points, self.labels = spirals()
        self.model = torch.nn.Sequential(
            torch.nn.Linear(2, 64), torch.nn.ReLU(), torch.nn.Dropout(0.1),
            torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2),
        )  # fmt: skip
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.schedule = torch.optim.lr_scheduler.StepLR(self.optimizer, 1000, 0.7)
        self.state = {
            "model": self.model,
            "optimizer": self.optimizer,
            "schedule": self.schedule,
            "rng": df.RNG(),
        }

    def step(self) -> float:
        chosen = torch.randint(POINTS, (BATCH,))
        guess = self.model(self.points[chosen])
        loss = torch.nn.functional.cross_entropy(guess, self.labels[chosen])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return float(loss.detach())

    def digest(self) -> str:
        """SHA-256 over weights, moments, learning rate and the generator."""
        found = hashlib.sha256()
        tensors = [*self.model.state_dict().values(), torch.get_rng_state()]
        for moments in self.optimizer.state.values():
            tensors += [moments["step"], moments["exp_avg"], moments["exp_avg_sq"]]
        for tensor in tensors:
            found.update(tensor.detach().numpy().tobytes())
        found.update(repr(self.schedule.get_last_lr()).encode())
        return found.hexdigest()


def spirals() -> tuple[torch.Tensor, torch.Tensor]:
    """Points in the plane, and which of two spirals each belongs to."""
    labels = torch.arange(POINTS) % 2
    turn = 3.0 * torch.rand(POINTS).sqrt()
    angle = 2.0 * torch.pi * (turn / 2 + labels / 2)
    points = turn[:, None] * torch.stack([angle.cos(), angle.sin()], dim=1)
    return points + 0.05 * torch.randn(POINTS, 2), labels


def tell(event: str, **more: object) -> None:
    print(json.dumps({"event": event, **more}), flush=True)


def main(steps: int, seed: int, run: str | None) -> None:
    torch.set_num_threads(1)
    training = Training(seed)
    if run is None:
        tell("started", step=0)
        train(training, 0, steps, None)
        return
    with df.Checkpointer(run, keep=df.keep(last=3, every=SAVED_EVERY)) as ckpt:
        start = ckpt.restore(training.state) or 0
        ckpt.attach(training.optimizer)
        tell("started", step=start)
        train(training, start, steps, ckpt)


def train(training: Training, start: int, steps: int, ckpt: df.Checkpointer | None) -> None:
    loss = 0.0
    for step in range(start + 1, steps + 1):
        loss = training.step()
        if ckpt is not None:
            ckpt.step(step, training.state)
        tell("step", step=step, loss=loss)
    tell("ended", loss=loss, digest=training.digest())


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else None)
