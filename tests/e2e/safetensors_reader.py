"""Reads one data file with whatever safetensors is installed; run in a process of its own.

`python safetensors_reader.py FILE` prints {"version": ..., "tensors": {key: [dtype, shape, sha]}}.
"""

from __future__ import annotations

import hashlib
import json
import sys

import safetensors
import torch
from safetensors.torch import load_file

Form = tuple[str, list[int], str]


def form(tensor: torch.Tensor) -> Form:
    """dtype, shape and SHA-256 of the bytes."""
    data = tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return str(tensor.dtype), list(tensor.shape), hashlib.sha256(data).hexdigest()


if __name__ == "__main__":
    found = {key: form(tensor) for key, tensor in load_file(sys.argv[1]).items()}
    print(json.dumps({"version": safetensors.__version__, "tensors": found}))
