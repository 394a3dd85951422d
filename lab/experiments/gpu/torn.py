"""Are saves torn that come while the device still works on the step before?

An optimizer enqueues many changes of all elements on the default stream; the save comes at once,
and the next step right behind it. What was stored is compared with a clone that the same stream
made between the two. Both savers take turns.
"""

import argparse
import random
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict_loader import load

from lab.measure.devices import Budget, Lines, judged
from lab.measure.files import delete
from lab.networks.torch_workloads import Hooks, Parts, Training
from lab.writers.loop import Saver
from lab.writers.loop_gpu import DcpStaged, DeepFreeze

BATCH = 50  # trials with one saver, before the other's turn
ERRORS_KEPT = 5  # of a saver, as text


@dataclass(frozen=True)
class Size:
    tensors: int
    elements: int  # of each
    changes_max: int  # in one step


FULL = Size(8, 1 << 21, 400)  # 64 MB: a copy takes milliseconds, a step several times as long
QUICK = Size(3, 1 << 12, 4)


class Churn(torch.optim.Optimizer):
    """Adds one to every element, again and again: each state is one number throughout."""

    def __init__(self, parameters: list[nn.Parameter], changes: Callable[[], int]) -> None:
        super().__init__(parameters, {})
        self.changes = changes

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        for _ in range(self.changes()):
            torch._foreach_add_(self.param_groups[0]["params"], 1.0)


class Churning(Training):
    """Nothing but updates, and nobody waits for them."""

    def train_step(self, step: int, hooks: Hooks) -> float:
        hooks.before_update()
        self.optimizers["all"].step()
        return 0.0

    def clone(self) -> dict[str, Tensor]:
        """Of what has been enqueued so far, by the stream itself."""
        return {name: one.detach().clone() for name, one in self.parts.model.named_parameters()}


def churning(size: Size, device: str, draw: random.Random) -> Churning:
    model = nn.ParameterList(torch.zeros(size.elements, device=device) for _ in range(size.tensors))

    def changes() -> int:
        return draw.randint(size.changes_max // 4, size.changes_max)

    return Churning(Parts(model, lambda them: Churn(list(them), changes), nn.MSELoss(), []))


@dataclass
class Outcome:
    saver: str
    title: str
    trials: int = 0
    torn: int = 0  # stored without a word, and not what it should be
    failed: int = 0  # the saver says so
    errors: list[str] = field(default_factory=list)

    def fail(self, error: str) -> None:
        self.failed += 1
        self.errors = [*self.errors, error][:ERRORS_KEPT]


def stored_by_deepfreeze(saver: Any, step: int, like: dict[str, Tensor]) -> dict[str, Tensor]:
    found: dict[str, Tensor] = saver.checkpointer.load(step, keys=["model.*"])["model"]
    return found


def stored_by_dcp(saver: Any, step: int, like: dict[str, Tensor]) -> dict[str, Tensor]:
    into = {name: torch.empty_like(one, device="cpu") for name, one in like.items()}
    reader = FileSystemReader(saver.directory / f"step-{step}")
    load({"model": into}, storage_reader=reader, no_dist=True)
    return into


Stored = Callable[[Any, int, dict[str, Tensor]], dict[str, Tensor]]
SUBJECTS: dict[type[Saver], Stored] = {DeepFreeze: stored_by_deepfreeze, DcpStaged: stored_by_dcp}


def trials(
    kind: type[Saver], training: Churning, place: Path, count: int, budget: Budget, outcome: Outcome
) -> None:
    """One saver's, while there is time."""
    saver = kind(training, place, 1)
    try:
        for step in range(1, count + 1):
            if budget.left_seconds() <= 0:
                return
            outcome.trials += 1
            try:
                trial(saver, training, step, outcome, SUBJECTS[kind])
            except Exception as error:  # whatever a library raises is its result
                outcome.fail(f"{type(error).__name__}: {error}")
    finally:
        saver.close()
        training.release()


def trial(saver: Saver, training: Churning, step: int, outcome: Outcome, stored: Stored) -> None:
    training.train_step(step, saver)
    saver.after_step(step)
    expected = training.clone()
    training.train_step(step, saver)
    saver.drain()
    saver.settle()
    if not saver.records[-1].committed:
        outcome.fail(saver.records[-1].error or "not committed")
        return
    found = stored(saver, step, expected)
    if not all(torch.equal(found[name].to(one.device), one) for name, one in expected.items()):
        outcome.torn += 1


def run(options: argparse.Namespace, seed: int, place: Path, lines: Lines, budget: Budget) -> int:
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")  # it is, for dcp
    size, draw = QUICK if options.quick else FULL, random.Random(seed)
    outcomes = {kind: Outcome(kind.name, kind.title) for kind in SUBJECTS}
    wanted = {
        kind: options.times if kind is DeepFreeze else options.peer_times for kind in SUBJECTS
    }
    try:
        for begun in range(0, max(wanted.values()), BATCH):
            for kind, outcome in outcomes.items():
                count = min(BATCH, max(0, wanted[kind] - begun))
                training = churning(size, options.device, draw)
                directory = place / f"{kind.name}-{begun}"
                trials(kind, training, directory, count, budget, outcome)
                delete(directory)
    finally:
        ours = report(outcomes, wanted, lines)
    return 1 if ours.torn or ours.failed or not ours.trials else 0


def report(
    outcomes: dict[type[Saver], Outcome], wanted: dict[type[Saver], int], lines: Lines
) -> Outcome:
    """Returns that of DeepFreeze."""
    for kind, outcome in outcomes.items():
        lines.add("torn", asdict(outcome))
        if outcome.trials < wanted[kind]:
            what = f"{outcome.title}: {outcome.trials} of {wanted[kind]} trials"
            lines.add("note", {"text": f"the time was over: {what}"})
    ours = outcomes[DeepFreeze]
    wrong = ours.torn + ours.failed if ours.trials else None
    lines.add("target", judged(f"torn or failed of {ours.trials}", wrong, "<=", 0))
    return ours
