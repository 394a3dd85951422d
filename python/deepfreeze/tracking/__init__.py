"""Gives the lineage and the metrics of runs to trackers: TensorBoard and MLflow.

Bytes of checkpoints stay in their run; trackers get numbers, names and paths.
"""

from deepfreeze.tracking.logged_models import to_mlflow
from deepfreeze.tracking.scalars import to_tensorboard

__all__ = ["to_mlflow", "to_tensorboard"]
