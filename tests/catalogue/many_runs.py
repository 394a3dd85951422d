"""Times `deepfreeze ls TREE` over many runs: python tests/catalogue/many_runs.py PROGRAM FOLDER.

Makes the runs in FOLDER if there are none, from one that the program's own writer made, with other
ids, steps and losses: sealed records with the same members, and data files of which only the names
and sizes count. Compares the answers with and without the indices, and with damaged ones.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

RUNS, STEPS = 1000, 100
SETTLED_SECONDS = 4  # an index is only made of a run that has not changed for three

_POLYNOMIAL = 0x82F63B78
_TABLE = []
for _byte in range(256):
    for _ in range(8):
        _byte = (_byte >> 1) ^ (_POLYNOMIAL if _byte & 1 else 0)
    _TABLE.append(_byte)


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def sealed(record: dict[str, object]) -> bytes:
    body = json.dumps(record, separators=(",", ":"))[1:]
    text = f'{{"crc32c":"00000000",{body}\n'.encode()
    return text.replace(b"00000000", b"%08x" % crc32c(text), 1)


def records_of(run: Path) -> tuple[dict[str, object], dict[str, object], dict[str, object]]:
    """The run's record, its first claim, and a manifest, without their checksums."""
    (step,) = run.glob("step-*")
    paths = [run / "deepfreeze.json", run / "generation-00000001.json", step / "manifest.json"]
    records = [json.loads(path.read_text()) for path in paths]
    for record in records:
        del record["crc32c"]
    return records[0], records[1], records[2]


def make(folder: Path, model: Path) -> None:
    run_record, claim, manifest = records_of(model)
    for number in range(RUNS):
        run = folder / f"group-{number % 10}" / f"run-{number:04}"
        run.mkdir(parents=True)
        run_id = f"{number + 1:016x}"
        (run / "deepfreeze.json").write_bytes(sealed(run_record | {"run_id": run_id}))
        (run / "generation-00000001.json").write_bytes(sealed(claim | {"run_id": run_id}))
        for step in range(1, STEPS + 1):
            attempt = f"{number * STEPS + step:016x}"
            place = run / f"step-{step:012}-{attempt}"
            place.mkdir()
            annotations = manifest["annotations"] | {
                "metrics": {"loss": 1 / (step + number), "accuracy": step / STEPS},
                "tags": {"lr": f"{number % 7}e-4"},
            }
            changed = {
                "run_id": run_id, "step": step, "save_index": step, "attempt_id": attempt,
                "annotations": annotations,
            }  # fmt: skip
            (place / "manifest.json").write_bytes(sealed(manifest | changed))
            for file in manifest["files"]:
                (place / file["name"]).touch()


def listed(program: str, folder: Path, *more: str) -> tuple[float, str]:
    begin = time.perf_counter()
    done = subprocess.run(
        [program, "ls", folder, "--json", *more], stdout=subprocess.PIPE, text=True, check=True
    )
    return time.perf_counter() - begin, done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", type=Path, help="a run with one checkpoint, to make others of")
    chosen = parser.parse_args()
    if not chosen.folder.exists():
        make(chosen.folder, chosen.model)
        time.sleep(SETTLED_SECONDS)
    for name in chosen.folder.rglob(".deepfreeze-index"):
        name.unlink()
    seconds, truth = listed(chosen.program, chosen.folder, "--no-index")
    print(f"{len(json.loads(truth)['runs'])} runs, without an index: {seconds:.2f} s")
    seconds, answer = listed(chosen.program, chosen.folder)
    print(f"indices written: {seconds:.2f} s")
    same = [answer == truth]
    for _ in range(5):
        seconds, answer = listed(chosen.program, chosen.folder)
        print(f"from the indices: {seconds:.3f} s")
        same.append(answer == truth)
    indices = sorted(chosen.folder.rglob(".deepfreeze-index"))
    print(f"{len(indices)} indices of {sum(path.stat().st_size for path in indices)} bytes")
    for place, path in enumerate(indices):
        data = path.read_bytes()
        damaged = (b"", data[: len(data) // 2], indices[place - 1].read_bytes(), data[::-1])
        path.write_bytes(damaged[place % 4])
    seconds, answer = listed(chosen.program, chosen.folder)
    print(f"all indices damaged: {seconds:.2f} s")
    same.append(answer == truth)
    print("same answers" if all(same) else "ANSWERS DIFFER")
    sys.exit(0 if all(same) else 1)


if __name__ == "__main__":
    main()
