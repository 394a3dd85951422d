"""Does a resumed training end as an undisturbed one? `python -m lab.experiments.keras_resume`.

Keras's own formats beside DeepFreezeCallback, on the tensorflow backend. One process trains the
first epoch and saves; another, seeded otherwise, makes the model anew, loads it and trains the
second; its weights and optimizer are compared, bit for bit, with those of one that trained both.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

FORMATS = (
    ".weights.h5", ".keras", ".h5 (legacy)", "tf.train.Checkpoint", "BackupAndRestore",
    "DeepFreezeCallback", "DeepFreezeCallback, within an epoch",
)  # fmt: skip
DROPOUTS = {"without dropout": "0", "with dropout": "0.2"}


def run_part(part: str, dropout: str, place: Path, name: str = "") -> tuple[str, str]:
    """The digest, and the error where there is one."""
    command = [sys.executable, "-m", "lab.experiments.keras_formats", part]
    command += ["--dropout", dropout, "--directory", str(place)]
    done = subprocess.run(
        [*command, "--format", name] if name else command,
        env={**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode == 0:
        return (done.stdout.split() or [""])[-1], ""
    return "", (done.stderr.strip().splitlines() or ["no message"])[-1]


def verdict(name: str, dropout: str, reference: str, place: Path) -> str:
    place.mkdir()
    _, error = run_part("first", dropout, place, name)
    found = ""
    if not error:
        found, error = run_part("second", dropout, place, name)
    if error:
        return f"fails: {error}"
    return "bit-identical" if found == reference else "other weights"


def compare(place: Path, formats: Sequence[str]) -> dict[str, dict[str, str]]:
    """By format, the verdict without dropout and with it."""
    results: dict[str, dict[str, str]] = {name: {} for name in formats}
    for label, dropout in DROPOUTS.items():
        reference, error = run_part("whole", dropout, place)
        if error:
            raise SystemExit(f"the undisturbed training failed: {error}")
        for index, name in enumerate(formats):
            results[name][label] = verdict(name, dropout, reference, place / f"{index}-{dropout}")
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=FORMATS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="keras-resume-") as place:
        results = compare(Path(place), options.formats)
    for name, verdicts in {"": {label: label for label in DROPOUTS}, **results}.items():
        print(f"{name:<36}", *(f"{text[:50]:<18}" for text in verdicts.values()))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
