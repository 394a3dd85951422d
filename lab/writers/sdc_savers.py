"""Orbax without compression: what its files hold is then the numbers themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.writers.jax_savers import Orbax
from lab.writers.saver import Pending


class OrbaxPlain(Orbax):
    """In one OCDBT store."""

    ocdbt = True

    def named(self) -> dict[str, Any]:
        """Without dots: the handler takes them for directories."""
        return {name.replace(".", "-"): array for name, array in self.arrays.items()}

    def open(self, directory: Path) -> None:
        library = self.library
        handler = library.PyTreeCheckpointHandler(use_compression=False, use_ocdbt=self.ocdbt)
        self.checkpointer = library.Checkpointer(handler)

    def save(self, directory: Path, step: int) -> Pending:
        arguments = self.library.args.PyTreeSave(self.named())
        self.checkpointer.save(self.place(directory, step), args=arguments)
        return Pending()

    def restore(self, directory: Path, step: int) -> None:
        self.open(directory)
        arguments = self.library.args.PyTreeRestore(self.named())
        found = self.checkpointer.restore(self.place(directory, step), args=arguments)
        self.arrays = {name: found[name.replace(".", "-")] for name in self.arrays}
        self.jax.block_until_ready(self.arrays)


class OrbaxZarrPlain(OrbaxPlain):
    """A directory for each array."""

    ocdbt = False
