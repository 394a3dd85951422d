"""A store is killed in flushes: `python -m tests.objects.kills --kills 20 [--seed S] [--json]`.

A run saves steps, each of two parts. At a random request of each flush the store gets SIGKILL,
before or after it has acted, and is started again. Each step must become durable all the same: then
the store has the near directory's bytes and no open upload, and at the end another machine restores
the newest step from the store alone.
"""

from __future__ import annotations

import random
import sys
import threading
from dataclasses import dataclass, field

from tests.e2e.command import announce_seed, conclude, make_parser, progress

from .exchange import Exchange
from .fault_proxy import When, matching
from .faults import Fault
from .seaweed import LEFT_OUT, find_program
from .stored_run import SECONDS, StoredRun, proxied_store, state_at, values_of


@dataclass
class Kills:
    before: int = 0  # before the store acted
    after: int = 0
    requests: int = 0  # of a flush without a fault
    faults: list[str] = field(default_factory=list)


def kill_in_flush(run: StoredRun, step: int, when: When, skipped: int, acts: bool) -> None:
    """Returns when the step is durable. The request in question has no answer."""
    acted, killed = threading.Event(), threading.Event()

    def act(it: Exchange) -> None:
        body = it.read_body()
        if acts:
            it.pass_on(body)
        acted.set()
        it.wait(killed)
        it.cut()

    with run.opened() as ckpt:
        ckpt.restore(state_at(0))
        with run.proxy.doing(Fault("killed", act), when, skipped):
            handle = ckpt.save(step, state_at(step))
            assert handle is not None
            assert acted.wait(SECONDS), "there was no such request"
            run.store.kill()
            killed.set()
            handle.wait("local", SECONDS)  # training does not notice
            run.store.restart()
        handle.wait("durable", SECONDS)


def requests_of_a_save(run: StoredRun, step: int) -> int:
    """Until it is durable. Later ones, which also delete, have more."""
    with run.opened() as ckpt:
        ckpt.restore(state_at(0))
        before = len(run.proxy.seen)
        handle = ckpt.save(step, state_at(step))
        assert handle is not None
        handle.wait("durable", SECONDS)
        return len(run.proxy.seen) - before


def prove(kills: int, seed: int, run: StoredRun) -> Kills:
    draw = random.Random(seed)
    found = Kills()
    run.save(1)
    found.requests = requests_of_a_save(run, 2)
    for number in range(kills):
        step, skipped, acts = number + 3, draw.randrange(found.requests), draw.random() < 0.5
        try:
            kill_in_flush(run, step, matching(), skipped, acts)
            run.assert_whole()
        except AssertionError as error:
            found.faults.append(f"step {step}, killed at request {skipped}, {acts=}: {error}")
        found.before += not acts
        found.after += acts
        progress(number + 1, kills, "kills")
    if run.restored() != (kills + 2, values_of(state_at(kills + 2))):
        found.faults.append("another machine does not restore the newest step")
    return found


def main(arguments: list[str]) -> int:
    parser = make_parser("tests.objects.kills", __doc__)
    parser.add_argument("--kills", type=int, default=20)
    options = parser.parse_args(arguments)
    program = find_program()
    if program is None:
        return conclude(options, LEFT_OUT, {"left_out": LEFT_OUT}, [])
    seed = announce_seed(options)
    with proxied_store(options, "object-kills", program) as (place, store, proxy):
        run = StoredRun(store, proxy, store.new_prefix(), place)
        found = prove(options.kills, seed, run)
    text = (
        f"object kills: {found.before} before the store acted and {found.after} after, at random "
        f"requests of flushes of {found.requests}: {len(found.faults)} faults"
    )
    return conclude(options, text, {"seed": seed, **vars(found)}, found.faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
