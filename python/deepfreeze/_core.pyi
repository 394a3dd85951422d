"""The native engine. Every call that can wait or copy releases the GIL."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

FORMAT_VERSION: int

class Ranks(Protocol):
    """How the processes of a job talk: see deepfreeze/ranks.h. Raises if a rank is lost."""

    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...
    def gather(self, data: bytes) -> list[bytes] | None:
        """The bytes of all ranks, by rank, for rank 0; None for the others."""
    def scatter(self, data: list[bytes]) -> bytes:
        """The caller's part of the list that rank 0 gives, one for each rank; others give none."""

# dtype names are those of safetensors: "F32", "BF16", ...; addresses are host pointers.

class TensorSpec:
    """One stored array."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    logical_dtype: str  # "" if dtype is the real one

class Table:
    """Contiguous buffers to save; the caller keeps them alive until captured.

    Kept from save to save, because most of the time only places and guards change. Its entries have
    no places at first.
    """

    # key, dtype, shape, logical dtype, bytes; for a box, its offset and the shape of the whole
    def __init__(
        self,
        forms: Sequence[
            tuple[str, str, Sequence[int], str, int, tuple[Sequence[int], Sequence[int]] | None]
        ],
    ) -> None: ...
    def place(self, places: Sequence[tuple[int, int, int, int]]) -> None:
        """Some entries' numbers, addresses, guards and devices.

        The device -1 is host memory; others are the ordinals of CUDA devices.
        """

class Target:
    """A contiguous buffer to fill, of the host or of a CUDA device."""

    # box: its offset in the whole tensor, and its extent
    def __init__(
        self,
        key: str,
        address: int,
        bytes: int,
        box: tuple[Sequence[int], Sequence[int]] | None = None,
        device: int = -1,
        stream: int = 0,
    ) -> None: ...

class CheckpointInfo:
    generation: int
    step: int
    save_index: int
    attempt_id: str  # 16 hex digits
    wall_micros: int
    bytes: int
    world_size: int
    abandoned: bool
    path: str
    copies: tuple[str, ...]  # the same checkpoint on farther tiers
    metrics: dict[str, float]
    tags: dict[str, str]
    environment: dict[str, str]
    non_finite: int | None
    diverged: list[tuple[str, list[int]]]  # keys, and the ranks that differ from the majority
    fault: str  # "" if the commit record verifies; opening a faulty one raises CorruptError

class SaveStatus:
    step: int
    bytes: int
    bytes_copied: int
    bytes_written: int
    bytes_shared: int
    guarded_bytes: int
    stall_seconds: float
    fence_seconds: float
    copy_seconds: float
    checksum_seconds: float
    write_seconds: float
    commit_seconds: float
    local_seconds: float
    durable_seconds: float
    protected_seconds: float
    early: bool
    captured: bool
    local: bool
    durable: bool
    protected: bool
    non_finite: int | None
    diverged: list[tuple[str, list[int]]]
    torn: list[str]
    tiers: list[tuple[str, str]]  # path; "not meant", "waiting", "committed" or "left out"
    error: BaseException | None  # an instance of the matching CheckpointError

class SaveHandle:
    def wait(self, level: str, timeout_seconds: float | None) -> None:
        """Returns when the level is reached, raises the save's own error, or TimeoutError."""
    def wait_copied(self, timeout_seconds: float | None) -> None:
        """Returns when the sources are no longer read: compare, then confirm. Raises as wait()."""
    def confirm(self, torn: Sequence[str]) -> None:
        """The save continues, or fails because these keys are torn."""
    def status(self) -> SaveStatus: ...

class OpenCheckpoint:
    @property
    def info(self) -> CheckpointInfo: ...
    def objects(self, rank: int = 0) -> str:
        """The state tree that the rank saved; "" if it saved none."""
    def tensors(self) -> list[TensorSpec]: ...
    def ranges(self) -> list[tuple[float, float, int, int] | None]:
        """Least and greatest finite value, counts of finite values and others, for each tensor."""
    def mended(self) -> list[tuple[str, str, str]]:
        """Bad copies that were come upon: file, the checkpoint's directory, cause."""
    def sources(self) -> dict[str, str]:
        """The checkpoint's directory from which each file is read."""
    def read(
        self, targets: Sequence[Target], verify: bool, counter: ReadCounter | None = None
    ) -> None: ...

class ReadCounter:
    """The progress of a read, while another thread continues it."""

    @property
    def bytes(self) -> int: ...

EXPONENT_FIRST: int
EXPONENT_BINS: int

class TensorSums:
    """Sums over pieces of a tensor: see deepfreeze/tensor_sums.h."""

    def __init__(self, dtype: str, stride: int) -> None: ...
    def add(self, address: int, earlier: int, bytes: int) -> None:
        """A piece, and the same piece at another time; its address may be 0."""
    @property
    def compared(self) -> bool: ...
    @property
    def exponents(self) -> list[int]: ...
    min: float
    max: float
    sum: float
    squares: float
    finite: int
    zeros: int
    non_finite: int
    own_squares: float
    earlier_squares: float
    delta_squares: float
    dot: float
    changed: int

class Fault:
    file: str
    cause: str
    blocks: list[int]
    tensors: list[str]

class Engine:
    """One run, opened for writing. For one thread at a time, like the C++ Checkpointer."""

    def __init__(
        self,
        path: str,
        *,
        keep_last: int | None = None,
        keep_every: int | None = None,
        keep_best: tuple[str, str, int] | None = None,  # metric, "min" | "max", count
        parent: tuple[str, int] | None = None,
        on_busy: str = "block",
        busy_wait_max_seconds: float = 600.0,
        profile: str = "auto",
        arena_bytes_max: int | None = None,
        statistics: bool = False,
        reuse_unchanged: bool = True,
        reuse_bytes_min: int = 16_000_000,
        ranks: Ranks | None = None,
        commit_wait_max_seconds: float = 600.0,
        audit_saves: int = 100,
        read_only: bool = False,
        # path, every, rules of keep (last, every, best), bytes per second; for a store: a callable
        # that returns access key, secret key, session token, and their end since 1970
        tiers: Sequence[
            tuple[
                str,
                int | None,
                int | None,
                int | None,
                tuple[str, str, int] | None,
                int,
                bool,
                str,
                str,
                Callable[[], tuple[str, str, str, float | None]] | None,
            ]
        ] = (),
        bytes_max: int | None = None,
        drain_wait_max_seconds: float = 600.0,
        # directory of its socket, "" for the usual one; command that starts one, none if empty
        agent: tuple[str, Sequence[str]] | None = None,
        # each node has a directory of its own; interface of their links, "" for all that are up
        nodes: tuple[str, tuple[int, int, int, str] | None] | None = None,
    ) -> None: ...
    def expect(self, bytes: int, devices: Sequence[int]) -> None:
        """Takes the memory for a save of about so much, in the background."""
    # streams: pairs of a device and the stream that its work is given to
    def prewarm(self, table: Table, objects: str, streams: Sequence[tuple[int, int]] = ()) -> None:
        """Does the setup of the first save of this state."""
    def save(
        self,
        step: int,
        table: Table,
        objects: str,
        metrics: dict[str, float],
        tags: dict[str, str],
        environment: dict[str, str],
        confirm: bool = False,
        streams: Sequence[tuple[int, int]] = (),
    ) -> SaveHandle | None: ...
    def fence(self, guard: int, streams: Sequence[tuple[int, int]] = ()) -> None:
        """Returns when all of the guard's tensors are copied; helps to copy.

        Tensors on devices may be changed by work that their streams are given from then on.
        """
    def fence_all(self, streams: Sequence[tuple[int, int]] = ()) -> None: ...
    def begin_capture(self, table: Table) -> bool:
        """Captures guarded tensors before their save(); False while the memory is in use."""
    def release(self, guard: int, streams: Sequence[tuple[int, int]] = ()) -> None:
        """The guard's tensors are final."""
    def discard_capture(self) -> None: ...
    def candidates(self) -> list[CheckpointInfo]: ...
    def open_checkpoint(self, info: CheckpointInfo) -> OpenCheckpoint:
        """Collective if each node has a directory of its own; it then reads until close()."""
    def continue_from(self, info: CheckpointInfo) -> None: ...
    def decline(self, code: str, message: str) -> None:
        """Instead of save() or prewarm(): these then fail on the other ranks. No effect alone."""
    def as_rank0(self, own: bool) -> bool:
        """Collective: the value that rank 0 gives."""
    def agree(self, subject: str, code: str = "", message: str = "") -> None:
        """Collective: raises, on all ranks, the error of the first that has one."""
    def heal(self, info: CheckpointInfo, restored: OpenCheckpoint) -> None:
        """Replaces the bad copies that a restore has come upon, in the background."""
    def tiers(self) -> list[TierStatus]: ...
    def drain(self, timeout_seconds: float) -> None:
        """Returns when no tier waits for anything."""
    def wait(self) -> None: ...
    def close(self) -> None: ...

class TierStatus:
    path: str
    waiting: int
    step: int | None
    bytes_sent: int
    bytes_total: int  # of all files that were copied
    stored_total: int  # that were sent for them: fewer if they were packed
    committed: int
    left_out: int
    saves_refused: int  # or skipped, for want of room: bytes_max
    failures: int
    error: BaseException | None

def check_devices() -> None:
    """Raises CheckpointError if the memory of CUDA devices can't be captured, and says why."""

def list_checkpoints(run: str, tiers: Sequence[str] = ()) -> list[CheckpointInfo]:
    """All checkpoints of any run, newest first, faulty ones too. Claims and writes nothing."""

def best_of(
    infos: Sequence[CheckpointInfo],
    metric: str | None,
    better: str | None,
    rule: tuple[str, str, int] | None,
) -> CheckpointInfo:
    """The best of a list, newest first; `rule` replaces arguments that are None."""

def parse_best(text: str) -> tuple[str | None, str | None]:
    """Metric and direction of "best", "best:METRIC" or "best:METRIC:min|max"."""

def recorded_best(run: str) -> tuple[str, str, int] | None:
    """The `best` of the `keep` by the process that claimed the run last."""

def open_checkpoint(info: CheckpointInfo) -> OpenCheckpoint: ...
def fork_checkpoint(info: CheckpointInfo, run: str) -> CheckpointInfo:
    """Begins the run `run` with it, by links if that is possible."""

def tag_checkpoint(
    info: CheckpointInfo, set: Mapping[str, str], remove: Sequence[str]
) -> CheckpointInfo:
    """Sets and removes tags that were given after the save; durable on return."""

def list_runs(tree: str) -> list[Path]:
    """The directory, if it is a run, and all runs below it."""

def delete_checkpoint(info: CheckpointInfo) -> None:
    """Deletes it durably, whatever rules keep it, even the newest."""

def verify_checkpoint(info: CheckpointInfo, counter: ReadCounter | None = None) -> list[Fault]:
    """Reads and checks every byte; empty means good."""

def set_error_factory(make: Callable[[str, str], BaseException]) -> None:
    """Called once by the package: (code name such as "corrupt", message) -> the exception."""

# These compare a state of torch with an earlier one. They keep numbers, not tensors.

class TensorKinds:
    """Types, dtypes, layouts and devices of tensors."""

    def __init__(self, tensors: list[Any]) -> None: ...
    def match(self, tensors: list[Any]) -> bool: ...

class RollCall:
    """The places of tensors in host memory, and their forms."""

    def __init__(self, tensors: list[Any]) -> None: ...
    def answer(self, tensors: list[Any]) -> list[Any] | None:
        """Their storages, if all tensors are unchanged."""

class Modules:
    """A tree of torch's modules, by the objects that it is made of."""

    def __init__(self, modules: list[Any], methods: list[str]) -> None:
        """All modules, each once and the outermost first, as modules() gives them.

        `methods`: those that give a module's state, unless its own attributes hide them.
        """
    def choose(self, values: list[Any]) -> bool:
        """Chooses the values that values_if_same() gives; False if the modules lack one of them."""
    def kinds_if_same(self, module: Any) -> set[type] | None:
        """The types of all modules; None if they consist of other objects than before."""
    def values_if_same(self, module: Any) -> tuple[list[Any], set[type]] | None:
        """The values in the chosen places, and the types of all modules.

        None as above, and if hooks or own attributes change the state.
        """

class Contents:
    """Which keys of some dicts refer to which objects."""

    def __init__(self, dicts: list[dict[Any, Any]]) -> None: ...
    def values_if_in(self, dicts: list[dict[Any, Any]]) -> list[Any] | None:
        """All their values; None unless the same keys refer to the same objects, in that order."""

# These follow the tensors that guards own. They keep numbers, and refer to no object.

class Versions:
    """Version counters and addresses of tensors, as they were when it was made."""

    def __init__(self, tensors: list[Any]) -> None: ...
    def again(self, tensors: list[Any]) -> Versions:
        """The present record of as many tensors, which have not moved."""
    def changed(self, tensors: list[Any]) -> list[int]:
        """The places of tensors that were written or moved since then."""
    def recorded(self) -> list[tuple[int, int]]: ...

class Placed:
    """Values by identity: tensors of a list by their place in it, others by their address."""

    def __init__(self, values: list[Any], tensors: list[Any]) -> None: ...
    def places(self) -> list[int]:
        """Each value's place among the tensors; -1 if it is not one of them."""
    def are(self, values: list[Any], tensors: list[Any]) -> bool:
        """Whether these values are in the same places, and otherwise the same objects."""

def objects_in(groups: list[Any], states: Any) -> list[Any] | None:
    """The parameters of groups, the values of states, and then the states' owners and names.

    None if a group is no list, or a state no dict, of Python's own.
    """

def differing(one: list[Any], other: list[Any]) -> list[int]:
    """The places at which two lists of one length have different objects."""
