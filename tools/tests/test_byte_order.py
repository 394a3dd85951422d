"""A big-endian processor is refused when CMake configures, before minutes of compiling."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from stamp import ROOT


# Clang has the code of all processors in it; without their libraries, nothing can be linked.
@pytest.mark.parametrize("processor", ["s390x", "powerpc64"])
def test_big_endian_is_refused_with_its_reason(processor: str, tmp_path: Path) -> None:
    settings = {
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": processor,
        "CMAKE_C_COMPILER": "clang-19",
        "CMAKE_CXX_COMPILER": "clang++-19",
        "CMAKE_C_COMPILER_TARGET": f"{processor}-linux-gnu",
        "CMAKE_CXX_COMPILER_TARGET": f"{processor}-linux-gnu",
        "CMAKE_TRY_COMPILE_TARGET_TYPE": "STATIC_LIBRARY",
    }
    words = [f"-D{name}={value}" for name, value in settings.items()]
    done = subprocess.run(
        ["cmake", "-G", "Ninja", "-S", str(ROOT), "-B", str(tmp_path), *words],
        capture_output=True,
        text=True,
        check=False,
    )
    told = " ".join(done.stderr.split())
    assert done.returncode != 0
    assert f"on big-endian processors (this compiler makes code for {processor})" in told
    assert "safetensors files are little-endian" in told
