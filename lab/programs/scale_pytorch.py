"""A rank of DistributedDataParallel over gloo, and the ways in which its ranks save."""

from dataclasses import replace
from typing import Any

import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from lab.measure.ranks_segments import TorchJob
from lab.networks.torch_workloads import WORKLOADS, Parts, Workload
from lab.programs.scale_rank import be_rank, share_of
from lab.writers import loop_ranks as savers

SAVERS = {
    "rank0": savers.OneOfAll,
    "all-write": savers.AllWrite,
    "asynchronous": savers.DcpAsyncSynced,
    "sharded": savers.DcpSaveSynced,
    "deepfreeze": savers.WindowTogether,
}


def data_parallel(workload: Workload, scaling: str, rank: int, ranks: int) -> Workload:
    def make_parts() -> Parts:
        parts = workload.make_parts()
        batches = share_of(parts.batches, scaling, rank, ranks)
        return replace(parts, model=DistributedDataParallel(parts.model), batches=batches)

    return replace(workload, make_parts=make_parts)


def main(arguments: dict[str, Any]) -> None:
    job = TorchJob()
    workload = WORKLOADS[arguments["workload"]]
    shared = data_parallel(workload, arguments["scaling"], job.rank, dist.get_world_size())
    be_rank(arguments, job, shared, SAVERS)
    dist.destroy_process_group()
