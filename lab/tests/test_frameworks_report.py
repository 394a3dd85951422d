"""The table of all frameworks says what was measured."""

import json
from pathlib import Path
from typing import Any

from lab.report.frameworks_table import DEEPFREEZE, FRAMEWORKS, NETWORKS, TARGET, report


def row(saver: str, low: float, ratio: float) -> dict[str, Any]:
    spread = {"median": ratio, "low": low, "high": ratio + 0.1}
    return {
        "saver": saver, "ratio": spread, "step_seconds": spread, "stall_p50_seconds": 0.0314,
        "durable_p50_seconds": 1.5, "file_bytes": {"median": 3.1e6}, "synced": "all",
    }  # fmt: skip


def test_shares_above_the_target_and_below_the_noise_are_named(tmp_path: Path) -> None:
    machine = {"commit": "abc+", "date": "2026-01-02T", "cores": 2, "cpu": "C", "kernel": "Linux 6"}
    for name, framework in FRAMEWORKS.items():
        for network in NETWORKS:
            own = row(framework.own, 0.9 if name == "jax" else 1.3, 1.4)
            ours = [row(each, 1.0, 1.2 if name == "torch" else 1.04) for each in DEEPFREEZE]
            experiment = {"every": 1, "rows": [row("none", 1, 1), *ours, own]}
            document = {"command": "c", "machine": machine, "experiments": [experiment]}
            (tmp_path / f"frameworks-{name}-{network}.json").write_text(json.dumps(document))
    text = report(tmp_path)
    above = ", step (0.50); ".join(f"PyTorch 2.13, {network}" for network in NETWORKS)
    assert f"Above the target: {above}, step (0.50).\n" in text
    assert TARGET < 0.5
    assert text.count("| below the noise; latency: below the noise |") == len(NETWORKS)
    assert text.count("| +0.04 | +0.40 | `ThreadWriter` | 0.10; latency: 0.10 |") == len(NETWORKS)
    assert "| step | DeepFreeze | 1.20 [1.00, 1.30] | 31 | 1,500 | 3.1 | all |" in text
