"""Jobs that save and load through torch.distributed.checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from .test_ranks import proof


@pytest.mark.parametrize("part", ["together", "by_a_process", "lost_ranks"])
def test_ranks_under_dcp(tmp_path: Path, part: str) -> None:
    assert proof("dcp_cases", tmp_path, part)["faults"] == []
