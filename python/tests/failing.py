"""Objects of a state that fail when a test wants it."""

from typing import Any


class Stateful:
    """An object of the state whose methods do as a test wants."""

    def __init__(self, load: Any = None, give: Any = None) -> None:
        self.load = load
        self.give = give

    def state_dict(self) -> dict[str, Any]:
        if self.give is not None:
            self.give()
        return {"v": 1}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if self.load is not None:
            self.load()


def fail(error: BaseException) -> Any:
    def raise_it() -> None:
        raise type(error)(*error.args)  # anew: a parameter of a test would keep its traceback

    return raise_it
