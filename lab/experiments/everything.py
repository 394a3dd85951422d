"""`make bench`: storage, growth, window and unchanged one after the other, then the page.

Each is a process of its own and writes its results as it goes. Exit status: 0; 1 where a part
failed (the others are run all the same); 130 where interrupted.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

from lab.experiments.storage import BIG
from lab.report import bench_page as page
from lab.writers.menu import FRAMEWORKS, python_of

RESULTS = Path("build/bench")
QUICK_RESULTS = Path("build/bench-quick")
QUICK_SAVERS = (
    "df",
    "torch-save-fsync",
    "safetensors",
    "dcp-async-reused",
    "torchsnapshot-async",
    "torch-checkpointing-sync",
)
QUICK_WINDOW = ("df-default", "torch-save", "dcp-async")
UNCHANGED = "lab.experiments.unchanged"


def storage(results: Path, *, quick: bool) -> list[str]:
    words = ["lab.experiments.storage", "--json", f"{results}/storage.json"]
    words += ["--markdown", f"{results}/summary.md"]
    if quick:
        words += ["--workload", "resnet50", "--rounds", "2", "--saves", "1"]
        return [*words, "--savers", *QUICK_SAVERS]
    return [*words, "--workload", *BIG]


def growth(results: Path) -> list[str]:
    return ["lab.experiments.growth", "--json", f"{results}/growth.json"]


def window(results: Path, name: str, every: str, *options: str) -> list[str]:
    words = ["lab.experiments.window", "--workload", name, "--every", every]
    words += ["--json", f"{results}/window-{name}.json"]
    return [*words, "--markdown", f"{results}/window-{name}.md", *options]


def unchanged(results: Path, *options: str) -> list[str]:
    words = [UNCHANGED, "--json", f"{results}/unchanged.json"]
    return [*words, "--markdown", f"{results}/unchanged.md", *options]


def commands(results: Path, *, quick: bool) -> list[list[str]]:
    if quick:
        short = ["--rounds", "2", "--steps", "4", "--savers", *QUICK_WINDOW]
        tuned = ["--workload", "lora", *short, "adapter"]
        return [
            storage(results, quick=True),
            window(results, "resnet50", "4", *short),
            unchanged(results, *tuned),
        ]
    windows = [window(results, "resnet50", "16,4,1")]
    windows += [window(results, name, "4", "--rounds", "3") for name in ("resnet152", "nt3")]
    windows += [window(results, "p1b1", "4", "--rounds", "3")]
    return [storage(results, quick=False), growth(results), *windows, unchanged(results)]


def python_for(words: list[str]) -> str:
    """PEFT is in the environment of the frameworks, which --quick does not make."""
    frameworks = python_of(FRAMEWORKS)
    return str(frameworks) if words[0] == UNCHANGED and frameworks.exists() else sys.executable


def run(words: list[str], directory: Path) -> int:
    command = [python_for(words), "-m", *words, "--directory", str(directory)]
    return subprocess.run(command, check=False).returncode


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="lab.experiments.everything", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="minutes: resnet50, few savers")
    parser.add_argument("--directory", type=Path, default=Path("build"), help="for checkpoints")
    parser.add_argument("--results", type=Path, help=f"default: {RESULTS}, {QUICK_RESULTS}")
    options = parser.parse_args(arguments)
    results = options.results or (QUICK_RESULTS if options.quick else RESULTS)
    results.mkdir(parents=True, exist_ok=True)
    began, failed = time.perf_counter(), 0
    try:
        for words in commands(results, quick=options.quick):
            print(f"bench: {words[0]}, after {time.perf_counter() - began:.0f} s", flush=True)
            status = run(words, options.directory)
            failed += status != 0
            page.main([str(results)])  # whatever ends the run, the page has this part
            if status == 130:
                return 130
    except KeyboardInterrupt:
        return 130
    print(f"bench: {results}/report.html, {time.perf_counter() - began:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
