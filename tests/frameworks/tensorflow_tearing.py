"""Twenty saves that updates run into: prints how many came back whole, and how many changed.

`bare` stores the same addresses, but lets the tensors go: the negative control.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import tensorflow as tf

import deepfreeze as df
from deepfreeze.saving.capture import Capture

SAVES = 20


def let_go() -> None:
    """No entry keeps the memory that it points to."""
    add = Capture.add

    def without_owners(self: Capture, entry: Any, _: Any, tensors: Any = ()) -> None:
        add(self, entry, [], tensors)

    Capture.add = without_owners


def main(hold: str, run: str) -> None:
    if hold == "bare":
        let_go()
    variable = tf.Variable(tf.zeros([1024, 1024]))
    update = tf.function(lambda: variable.assign_add(tf.ones_like(variable)))
    whole = changed = 0
    with df.Checkpointer(run, profile="latency") as ckpt:
        for step in range(1, SAVES + 1):
            update()
            handle = ckpt.save(step, {"v": variable})
            assert handle is not None
            update()
            try:
                handle.wait("durable")
            except df.TornCaptureError:  # it was found
                changed += 1
                continue
            values = ckpt.load(step)["v"]
            right = np.all(values == 2 * step - 1)
            whole, changed = whole + right, changed + (not right)
    print(whole, changed)


if __name__ == "__main__":
    main(*sys.argv[1:])
