"""What a hostile review broke: half restored state, containers, RNG order, threads, ends."""

import ctypes
import gc
import logging
import random
import signal
import threading
import time
from collections import Counter, OrderedDict, deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_process import python
from testkit import data_file, data_start, flip, same, save

import deepfreeze as df
from deepfreeze import checkpointer as checkpointer_module
from deepfreeze.restoring import matching, restore_plan
from deepfreeze.saving import capture as capture_module
from deepfreeze.saving import handle as handle_module


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


# Restores that fail half-way


def half_restored(ckpt: df.Checkpointer) -> dict[str, Any]:
    state = {"a": torch.ones(4), "b": torch.ones(4), "own": Stateful()}
    save(ckpt, 1, state)
    with pytest.raises(df.CheckpointError, match="no"):
        ckpt.restore({**state, "own": Stateful(load=fail(ValueError("no")))})
    return state


def test_a_restore_of_a_part_does_not_end_the_refusal(ckpt: df.Checkpointer) -> None:
    state = half_restored(ckpt)
    ckpt.restore(state, keys=["a"])
    with pytest.raises(df.CheckpointError, match="half restored"):
        ckpt.save(2, state)
    ckpt.restore(state)
    save(ckpt, 2, state)


def test_a_restore_of_all_that_was_touched_ends_the_refusal(ckpt: df.Checkpointer) -> None:
    state = half_restored(ckpt)
    ckpt.restore(state, keys=["a", "b", "own"])
    save(ckpt, 2, state)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), SystemExit(3)])
def test_an_interrupted_restore_makes_save_refuse(
    ckpt: df.Checkpointer, error: BaseException
) -> None:
    state = {"a": torch.ones(4), "own": Stateful()}
    save(ckpt, 1, state)
    with pytest.raises((type(error), df.CheckpointError)):
        ckpt.restore({**state, "own": Stateful(load=fail(error))})
    with pytest.raises(df.CheckpointError, match="half restored"):
        ckpt.save(2, state)


def test_an_interrupt_before_anything_is_modified_changes_nothing(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = {"a": torch.ones(4)}
    save(ckpt, 1, state)
    monkeypatch.setattr(restore_plan, "match_state", lambda *_: fail(KeyboardInterrupt())())
    with pytest.raises(KeyboardInterrupt):
        ckpt.restore(state)
    save(ckpt, 2, state)


class Own:
    def __init__(self, value: Any) -> None:
        self.value = value


def test_a_fault_of_from_tree_is_no_damage_and_modifies_nothing(
    ckpt: df.Checkpointer, caplog: pytest.LogCaptureFixture
) -> None:
    broken = False

    def from_tree(value: Any) -> Own:
        if broken:
            raise ValueError("from_tree is at fault")
        return Own(value)

    df.register_type(Own, "test.review.own", lambda own: own.value, from_tree)
    for step in (1, 2):
        save(ckpt, step, {"x": torch.full((4,), float(step)), "own": Own(step), "n": [step]})
    broken = True
    live = {"x": torch.zeros(4), "own": Own(0), "n": [0]}
    with pytest.raises(df.CheckpointError, match="from_tree is at fault") as caught:
        ckpt.restore(live)
    assert (caught.value.code, caught.value.state_modified) == ("unsupported", False)
    assert not caplog.records
    assert (live["x"] == 0).all()
    assert live["n"] == [0]
    save(ckpt, 3, {"x": torch.zeros(1)})


class Other(Own):
    """Registered under a name of its own."""


def test_of_two_registered_types_neither_becomes_the_other(ckpt: df.Checkpointer) -> None:
    """Unless all in it is plain, which strict=False allows of any."""
    for kind, name in ((Own, "test.review.own"), (Other, "test.review.other")):
        df.register_type(kind, name, lambda own: own.value, kind)
    save(ckpt, 1, {"v": Own(torch.ones(1))})
    state = {"v": Other(torch.zeros(1))}
    with pytest.raises(df.MismatchError, match=r"v: stored .*, live a Other"):
        ckpt.restore(state)
    ckpt.restore(state, strict=False)
    assert ckpt.last_restore is not None
    assert [*ckpt.last_restore.mismatched] == ["v"]
    assert type(state["v"]) is Other


@pytest.mark.parametrize(
    "error", [ValueError("no"), df.CorruptError("its own file"), df.IncompleteError("part")]
)
def test_once_applying_has_begun_no_other_checkpoint_is_tried(
    ckpt: df.Checkpointer, error: Exception
) -> None:
    for step in (1, 2):
        save(ckpt, step, {"x": torch.full((4,), float(step)), "own": Stateful()})
    live = {"x": torch.zeros(4), "own": Stateful(load=fail(error))}
    with pytest.raises(df.CheckpointError, match=str(error)) as caught:
        ckpt.restore(live)
    assert (caught.value.code, caught.value.state_modified) == ("unsupported", True)
    assert (live["x"] == 2).all()


def test_damaged_data_still_falls_back(run: Path) -> None:
    with df.Checkpointer(run) as ckpt:
        for step in (1, 2):
            save(ckpt, step, {"x": torch.full((1000,), float(step)), "n": {"k": [step]}})
        path = data_file(run, 2)
        flip(path, data_start(path) + 100)
        live: Any = {"x": torch.zeros(1000), "n": {"k": [0]}}
        assert ckpt.restore(live) == 1
    assert (live["x"] == 1).all()
    assert live["n"] == {"k": [1]}


# Random numbers


def test_an_object_that_draws_when_it_is_loaded_shifts_no_stream(ckpt: df.Checkpointer) -> None:
    def draw() -> None:
        torch.rand(3)
        random.random()
        np.random.random()

    state = {"rng": df.RNG(), "own": Stateful(load=draw)}
    save(ckpt, 1, state)
    expected = (torch.rand(1).item(), random.random(), np.random.random())
    ckpt.restore(state)
    assert (torch.rand(1).item(), random.random(), np.random.random()) == expected


def test_a_state_dict_that_draws_is_part_of_what_is_saved(ckpt: df.Checkpointer) -> None:
    state = {"rng": df.RNG(), "own": Stateful(give=random.random)}
    save(ckpt, 1, state)
    expected = random.random()
    ckpt.restore({"rng": df.RNG(), "own": Stateful()})
    assert random.random() == expected


@pytest.mark.parametrize("seed", [7, [1, 2, 3], None])
def test_children_of_a_numpy_generator_go_on_as_before(ckpt: df.Checkpointer, seed: Any) -> None:
    saved, live = np.random.default_rng(seed), np.random.default_rng(99)
    saved.spawn(2)
    live.spawn(5)
    save(ckpt, 1, {"rng": df.RNG(saved)})
    ckpt.restore({"rng": df.RNG(live)})
    one, other = saved.spawn(1)[0], live.spawn(1)[0]
    assert one.integers(1 << 60, size=4).tolist() == other.integers(1 << 60, size=4).tolist()
    assert saved.random() == live.random()


# Containers


def test_a_tuple_becomes_another_value_and_another_value_a_tuple(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"h": {"a": 1, "b": (1, [2])}, "x": torch.ones(1)})
    live = {"h": {"a": (0, [0]), "b": 0}, "x": torch.zeros(1)}
    ckpt.restore(live)
    assert live["h"] == {"a": 1, "b": (1, [2])}


def test_nested_containers_keep_their_identity(ckpt: df.Checkpointer) -> None:
    def make(n: int) -> dict[str, Any]:
        return {
            "x": torch.full((2,), float(n)),
            "h": {"z": {"loss": [n, [n]]}, "a": (n, [n])},
            "list": [[n], {"k": n}], "set": {n}, "queue": deque([n], 3),
            "bytes": bytearray([n]), "count": Counter({n: n}), "od": OrderedDict([(n, [n])]),
        }  # fmt: skip

    stored, live = make(1), make(2)
    stored["h"] = {"new": [1], **stored["h"]}
    stored["list"].append([5])
    inner = live["h"]["z"]["loss"]
    held = [
        live["h"], live["h"]["z"], inner, inner[1], live["h"]["a"][1], live["list"],
        *live["list"], live["set"], live["queue"], live["bytes"], live["count"], live["od"],
    ]  # fmt: skip
    save(ckpt, 1, stored)
    ckpt.restore(live)
    inner = live["h"]["z"]["loss"]
    now = [
        live["h"], live["h"]["z"], inner, inner[1], live["h"]["a"][1], live["list"],
        *live["list"][:2], live["set"], live["queue"], live["bytes"], live["count"], live["od"],
    ]  # fmt: skip
    assert all(one is other for one, other in zip(held, now, strict=True))
    del stored["x"], live["x"]
    assert same(stored, live)  # in order of keys too


def test_one_live_list_in_two_places_takes_only_one_value(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"h": [[1], [2]]})
    one = [0]
    live = {"h": [one, one]}
    ckpt.restore(live)
    assert live == {"h": [[1], [2]]}


def test_a_live_deque_keeps_its_own_bound(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"q": deque([1, 2, 3], 3)})
    live = {"q": deque([9], 2)}
    held = live["q"]
    ckpt.restore(live)
    assert live["q"] is held
    assert (list(held), held.maxlen) == ([2, 3], 2)


def test_plain_data_may_change_its_keys_and_structure_may_not(ckpt: df.Checkpointer) -> None:
    save(ckpt, 1, {"history": {"loss": [0.5, np.float32(1)], "new": 2}, "m": {"t": torch.ones(1)}})
    live: Any = {"history": {"old": [np.float64(1)]}, "m": {"t": torch.zeros(1)}}
    ckpt.restore(live)
    assert same(live["history"], {"loss": [0.5, np.float32(1)], "new": 2})
    live["m"]["extra"] = 1
    with pytest.raises(df.MismatchError, match=r"missing in the checkpoint: m\.extra"):
        ckpt.restore(live)
    with pytest.raises(df.MismatchError, match="missing in the checkpoint: top"):
        ckpt.restore({**live, "m": {"t": torch.zeros(1)}, "top": 1})


@pytest.mark.parametrize(
    ("stored", "live"),
    [
        ([(1, [2]), (3,)], [(0,), (0, [0])]),
        ([{"a": 1}, [2], {3}, deque([4])], [[1], {"a": 2}, [3], {4}]),
    ],
)
def test_within_plain_data_lengths_and_containers_may_change(
    ckpt: df.Checkpointer, stored: Any, live: Any
) -> None:
    save(ckpt, 1, {"h": stored})
    state = {"h": live}
    ckpt.restore(state)
    assert state["h"] is live
    assert same(live, stored)


@pytest.mark.parametrize(
    ("stored", "live"),
    [
        ([1], deque([2])), (deque([2]), [1]), (1, [1]), ("1", 1), (1, "1"), (True, 1), (1, True),
        ("f", np.float32(1)), (np.bool_(True), np.float32(1)), ({"a": 1}, torch.float32),
        (torch.float32, "float32"), (torch.float32, torch.Size([1])), ((1,), [1]), ([1], {}),
        ({"a": 1}, []), ({1}, [1]), (b"1", bytearray(b"1")),
    ],
)  # fmt: skip
def test_another_kind_of_value_is_a_mismatch_under_strict(
    ckpt: df.Checkpointer, stored: Any, live: Any
) -> None:
    save(ckpt, 1, {"a": {"v": stored, "t": torch.ones(1)}})
    state = {"a": {"v": live, "t": torch.zeros(1)}}
    with pytest.raises(df.MismatchError, match=r"a\.v: stored .*, live a") as caught:
        ckpt.restore(state)
    assert not caught.value.state_modified
    ckpt.restore(state, strict=False)
    assert same(state["a"]["v"], stored)


@pytest.mark.parametrize(
    ("stored", "live"),
    [
        (1.5, 1), (1, 1.5), (np.float64(2), float("inf")), (2.5, np.float32(1)), (1 << 60, 0),
        ([1], None), (None, 1), (None, [1]), (torch.int8, torch.float32), ({"a": 1}, {}),
        (float("nan"), 1.0), (b"x" * 9000, b""),
    ],
)  # fmt: skip
def test_numbers_are_one_kind_and_none_takes_any(
    ckpt: df.Checkpointer, stored: Any, live: Any
) -> None:
    save(ckpt, 1, {"v": stored})
    state = {"v": live}
    ckpt.restore(state)
    assert same(state["v"], stored)


@pytest.mark.parametrize(
    "key",
    [
        np.int64(1), np.float32(1), torch.float32, torch.Size([1]), (1, np.int64(2)),
        torch.device("cpu"), b"x" * 5000, frozenset([torch.int8]),
    ],
)  # fmt: skip
def test_a_key_that_could_not_be_read_again_is_refused(ckpt: df.Checkpointer, key: Any) -> None:
    with pytest.raises(df.EncodeError, match=r"^outer\..*as a key of a dict"):
        ckpt.save(1, {"outer": {key: 1}})
    assert ckpt.steps() == []


# Handles and the thread that completes them


def test_a_future_of_a_save_can_not_be_cancelled(ckpt: df.Checkpointer) -> None:
    handle = ckpt.save(1, {"x": torch.ones(1 << 20)})
    assert handle is not None
    assert [f.cancel() for f in (handle.captured, handle.local, handle.durable)] == [False] * 3
    handle.wait("durable", timeout=60)
    assert handle.durable.result() == 1
    assert ckpt.failed_saves == 0


def test_without_a_thread_save_itself_waits(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with df.Checkpointer(run) as ckpt:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", no_thread)
            handle = ckpt.save(1, {"x": torch.ones(10)})
        assert handle is not None
        assert handle.durable.result(timeout=0) == 1
        assert ckpt.in_flight() == []
        save(ckpt, 2, {"x": torch.ones(10)})


class Raising(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise OSError("the log is full")


def test_a_log_handler_that_raises_ends_no_thread(run: Path) -> None:
    raising = Raising()
    logging.getLogger("deepfreeze").addHandler(raising)
    try:
        done = handle_module.Completer()
        handle = df.SaveHandle(1, None)  # without a native handle, its completion fails
        done.add(handle)
        with pytest.raises(AssertionError):
            handle.durable.result(timeout=60)
        done.join()
        assert (done.failed_saves, done.in_flight()) == (1, [])
    finally:
        logging.getLogger("deepfreeze").removeHandler(raising)


def test_a_child_forked_during_save_still_ends_by_sigterm(run: Path) -> None:
    done = python(
        """
        import os, signal, sys, time, deepfreeze as df
        ckpt = df.Checkpointer(sys.argv[1])
        df.finish_on_sigterm(ckpt)
        children = []

        class Forks:
            def state_dict(self):
                pid = os.fork()
                if pid == 0:
                    os.kill(os.getpid(), signal.SIGTERM)
                    os._exit(9)  # SIGTERM had no effect
                children.append(pid)
                return {}

            def load_state_dict(self, state):
                pass

        ckpt.save(1, {"f": Forks()}).wait()
        print(os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1]))
        """,
        run,
    )
    assert (done.returncode, done.stdout) == (0, f"{-signal.SIGTERM}\n"), done.stderr


class NeverEnds:
    """A native handle of a save that hangs in the kernel."""

    def wait(self, level: str, timeout: float) -> None:
        time.sleep(min(timeout, 0.05))
        raise TimeoutError


def test_the_end_of_a_with_block_gives_up_and_lets_the_exception_out(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handle_module, "EXIT_SECONDS_MAX", 0.2)
    handle = df.SaveHandle(1, NeverEnds())  # type: ignore[arg-type]
    ckpt = df.Checkpointer(run)
    ckpt._completer.add(handle)
    with pytest.raises(ZeroDivisionError), ckpt:
        raise ZeroDivisionError
    with pytest.raises(TimeoutError, match="step 1 was not durable"):
        handle.durable.result(timeout=10)
    assert ckpt._completer.gave_up
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(ckpt._engine))  # giving up keeps it alive


def test_a_failing_close_does_not_hide_the_exception(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ckpt = df.Checkpointer(run)
    with monkeypatch.context() as patch:
        patch.setattr(ckpt, "close", fail(df.CheckpointError("close failed")))
        with pytest.raises(ZeroDivisionError), ckpt:
            raise ZeroDivisionError
        with pytest.raises(df.CheckpointError, match="close failed"), ckpt:
            pass
    ckpt.close()


def test_a_dropped_checkpointer_closes_its_engine_without_the_gil(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []
    real = checkpointer_module._core.Engine

    class Engine:
        def __init__(self, *arguments: Any, **options: Any) -> None:
            self._real = real(*arguments, **options)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._real, name)

        def close(self) -> None:
            closed.append(True)
            self._real.close()

    monkeypatch.setattr(checkpointer_module._core, "Engine", Engine)
    ckpt = df.Checkpointer(run)
    handle = ckpt.save(1, {"x": torch.ones(1 << 22)})
    assert handle is not None
    del ckpt
    gc.collect()
    assert closed == [True]
    handle.wait(timeout=60)
    other = df.Checkpointer(run)
    other.close()
    del other
    gc.collect()
    assert closed == [True, True]


# The arguments of save()


@pytest.mark.parametrize("value", [None, "high", [1]])
def test_a_metric_that_is_no_number_is_named(ckpt: df.Checkpointer, value: Any) -> None:
    with pytest.raises(TypeError, match=r"'val_loss'.*no number"):
        ckpt.save(1, {"x": 1}, metrics={"acc": 1, "val_loss": value})
    save(ckpt, 1, {"x": 1}, metrics={"acc": np.float32(1), "loss": torch.tensor(0.5)})


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_want_of_memory_during_capture_fails_the_handle(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(capture_module, "Capture", lambda *_: fail(error)())
        handle = ckpt.save(1, {"x": torch.ones(4)})
    assert handle is not None
    with pytest.raises(df.NoSpaceError, match="capture"):
        handle.wait(timeout=0)
    assert ckpt.failed_saves == 1
    handle = ckpt.save(2, {"own": Stateful(give=fail(MemoryError()))})
    assert handle is not None
    assert ckpt.failed_saves == 2
    save(ckpt, 3, {"x": torch.ones(4)})


@pytest.mark.parametrize("enabled", [True, False])
def test_the_cyclic_collector_rests_during_capture_and_match(
    ckpt: df.Checkpointer, monkeypatch: pytest.MonkeyPatch, enabled: bool
) -> None:
    seen = []
    state = {"own": Stateful(give=lambda: seen.append(gc.isenabled()))}
    real = matching.match_state

    def watched(*arguments: Any) -> None:
        seen.append(gc.isenabled())
        real(*arguments)

    monkeypatch.setattr(restore_plan, "match_state", watched)
    was = gc.isenabled()
    try:
        (gc.enable if enabled else gc.disable)()
        save(ckpt, 1, state)
        ckpt.restore(state)
        with pytest.raises(df.EncodeError):
            ckpt.save(2, {"x": object()})
        assert gc.isenabled() == enabled
    finally:
        (gc.enable if was else gc.disable)()
    assert seen == [False, False]
