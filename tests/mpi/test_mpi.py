"""C++ and MPI without Python: the installed library, MpiRanks, the example killed and resumed."""

from __future__ import annotations

import random
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from .job import ROOT, Job, build, install, lacking

STEPS = 600
EVERY = 10


@dataclass(frozen=True)
class Programs:
    heat: Path
    cases: Path


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    if missing := lacking():
        pytest.skip(f"LEFT OUT: {missing}")
    place = tmp_path_factory.mktemp("mpi")
    install(place / "installed")
    build(ROOT / "examples/mpi_heat", place / "heat", place / "installed")
    build(ROOT / "tests/mpi", place / "cases", place / "installed")
    return Programs(place / "heat/mpi_heat", place / "cases/mpi_ranks_cases")


def test_python_has_them_by_mpi4py(tmp_path: Path) -> None:
    if missing := lacking():
        pytest.skip(f"LEFT OUT: {missing}")
    program = Path(__file__).parent / "save_with_mpi4py.py"
    with Job(3, sys.executable, program, tmp_path / "run") as job:
        job.read_to_end()
    said = sum(line.count("good") for line in job.lines)  # two may come as one line
    assert said == 3, job.lines


@dataclass(frozen=True)
class Ended:
    started: int
    plate: str


def heat(programs: Programs, ranks: int, run: Path, steps: int = STEPS) -> Job:
    numbers = {"--steps": steps, "--every": EVERY, "--rows": 301, "--columns": 257}
    words = [str(word) for pair in numbers.items() for word in pair]
    return Job(ranks, programs.heat, "--run", run, *words)


def to_end(programs: Programs, ranks: int, run: Path, steps: int = STEPS) -> Ended:
    with heat(programs, ranks, run, steps) as job:
        ended = Ended(int(job.read_until("starts")), job.read_until("plate"))
        assert job.read_to_end() == 0, job.lines
    return ended


def killed(programs: Programs, ranks: int, run: Path, draw: random.Random) -> int:
    """SIGKILL at a random moment of a job that begins; the newest step that it called durable."""
    with heat(programs, ranks, run) as job:
        for _ in range(draw.randrange(1, STEPS // EVERY * 2 // 3)):
            durable = int(job.read_until("durable"))
        time.sleep(draw.uniform(0, 0.05))
        job.kill()
        job.read_to_end()
    return max(durable, *(int(line.split()[1]) for line in job.lines if line.startswith("durable")))


def test_ranks_over_mpi(programs: Programs) -> None:
    with Job(3, programs.cases) as job:
        status = job.read_to_end()
    bad = [line for line in job.lines if not line.startswith("good ")]
    assert (status, bad) == (0, [])
    assert len(job.lines) == 3 * 9


def test_the_plate_is_the_same_killed_and_resumed_with_other_ranks(
    programs: Programs, tmp_path: Path
) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    draw = random.Random(seed)
    reference = to_end(programs, 1, tmp_path / "undisturbed")
    assert reference.started == 0
    other = to_end(programs, 1, tmp_path / "shorter", STEPS - 1)
    assert other.plate != reference.plate  # a step more or less is seen

    durable = killed(programs, 3, tmp_path / "killed", draw)
    for ranks in (2, 4):
        run = tmp_path / f"resumed-{ranks}"
        shutil.copytree(tmp_path / "killed", run)
        ended = to_end(programs, ranks, run)
        assert durable <= ended.started < STEPS, seed
        assert ended.plate == reference.plate, seed


def test_another_plate_is_refused(programs: Programs, tmp_path: Path) -> None:
    run = tmp_path / "run"
    to_end(programs, 2, run, EVERY)
    with Job(2, programs.heat, "--run", run, "--rows", "300", "--columns", "257") as job:
        assert job.read_to_end() != 0
    assert any("mpi_heat: " in line for line in job.lines), job.lines
    assert to_end(programs, 1, run, EVERY).started == EVERY
