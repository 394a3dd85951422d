"""Ways to save, beside a training loop: `python -m lab.experiments.frameworks {chainer,keras,jax}`.

What lab.experiments.window is for torch, with the same options, the same tables and some of the
same networks: each framework's own writers beside DeepFreeze.
"""

import importlib
import sys

from lab.experiments.window import Menu, main

FRAMEWORKS = ("chainer", "jax", "keras")


def menu_of(framework: str) -> Menu:
    """Imports the framework."""
    module = importlib.import_module(f"lab.networks.{framework}_workloads")
    savers = {each.name: each for each in module.SAVERS}
    return Menu(f"lab.experiments.frameworks {framework}", module.WORKLOADS, savers)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in FRAMEWORKS:
        sys.exit(main(sys.argv[2:], menu_of(sys.argv[1])))
    print(f"usage: python -m lab.experiments.frameworks {{{','.join(FRAMEWORKS)}}} [--help]")
    sys.exit(2)
