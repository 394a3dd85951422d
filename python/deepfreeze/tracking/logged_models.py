"""Steps as MLflow's logged models: with metrics, tags and a path, without the bytes."""

from __future__ import annotations

import math
import os
import re
from typing import Any

from deepfreeze.errors import make_error
from deepfreeze.exploring.runs import Run
from deepfreeze.exploring.steps import Step
from deepfreeze.tracking.lineage import Paths, line_of, metrics_of, runs_to_export

_RUN_ID, _PATH, _PARENT = "deepfreeze.run_id", "deepfreeze.path", "deepfreeze.parent"
_ATTEMPT, _STEP = "deepfreeze.attempt", "deepfreeze.step"
_NOT_FINITE = "deepfreeze.not_finite"
_MLFLOW_PARENT = "mlflow.parentRunId"
_ODD = re.compile(r"[^\w ./-]", re.ASCII)  # MLflow refuses these in names
_VALUE_MAX = 5_000  # of a tag
_PAGE = 100


def to_mlflow(runs: Paths, experiment: str, *, tracking_uri: str | None = None) -> dict[str, str]:
    """Writes the lineage and the metrics of runs to MLflow 3; MLflow's run ids by the runs' paths.

    runs: A run, a directory with runs below it, or a list of these. Runs that they started from
      are written, too; a fork is a child of the run that it started from, at any depth.
    experiment: The name of the experiment; it is made if there is none.
    tracking_uri: The server or store; without it, MLflow's own setting (MLFLOW_TRACKING_URI).

    Each committed step of a run's present line is a LoggedModel "step-N" with the step's metrics
    and tags, and the path of the checkpoint in `deepfreeze.path`; the bytes stay there. A metric
    that is not finite belongs to MLflow's run alone, and stands in the model's tag
    `deepfreeze.not_finite`. A second call adds the steps that are new; a step that was deleted
    since stays in MLflow. Runs are only read, also while they are written to; one call at a time
    for an experiment.

    Raises CheckpointError if the package `mlflow` is not installed, a run can't be read, or MLflow
    refuses a call: models that were logged until then stay, and the next call goes on.
    """
    make_client = _client_class()
    found = runs_to_export(runs)
    try:
        return _export(make_client(tracking_uri), found, experiment)
    except Exception as error:  # MLflow's stores raise those of their libraries, too
        place = tracking_uri or "MLFLOW_TRACKING_URI"
        raise make_error(
            "io",
            f"export to MLflow, experiment {experiment!r} at {place}: {error}; the next call "
            "goes on from there",
        ) from error


def _client_class() -> Any:
    try:
        from mlflow import MlflowClient

        MlflowClient.create_logged_model  # noqa: B018  # MLflow 2 has none
    except (ImportError, AttributeError) as error:
        raise make_error(
            "unsupported",
            f"export to MLflow: {error}; version 3 of its package is needed here: pip install "
            "'mlflow>=3'",
        ) from error
    return MlflowClient


def _export(client: Any, runs: list[Run], name: str) -> dict[str, str]:
    known = client.get_experiment_by_name(name)
    experiment = known.experiment_id if known is not None else client.create_experiment(name)
    made: dict[str, str] = {}
    for run in runs:
        made[run.id] = _run_in(client, experiment, run, made)
        done = _done_models(client, experiment, made[run.id])
        steps = line_of(run)
        for step in steps:
            if step.attempt not in done:
                _add_model(client, experiment, made[run.id], step)
        end = steps[-1].time_micros // 1000 if steps else run.began_micros // 1000
        client.set_terminated(made[run.id], "FINISHED", end)
    return {os.fspath(run.path): made[run.id] for run in runs}


def _run_in(client: Any, experiment: str, run: Run, made: dict[str, str]) -> str:
    """The id of MLflow's run for this one, which is created if there is none."""
    if not re.fullmatch(r"[0-9A-Za-z-]+", run.run_id):
        raise ValueError(f"{run.path}: its id {run.run_id!r} can't be searched for")
    found = client.search_runs([experiment], f"tags.`{_RUN_ID}` = '{run.run_id}'", max_results=1)
    if found:
        return str(found[0].info.run_id)
    tags = {_RUN_ID: run.run_id, _PATH: _tag(os.fspath(run.path))}
    if run.parents:
        parent = run.parents[0]
        tags[_PARENT] = _tag(f"{parent.path}@{parent.step}")
        if parent.run in made:
            tags[_MLFLOW_PARENT] = made[parent.run]
    begin = run.began_micros // 1000
    created = client.create_run(experiment, start_time=begin, tags=tags, run_name=_tag(run.name))
    return str(created.info.run_id)


def _done_models(client: Any, experiment: str, run: str) -> set[str]:
    """The attempts that have a whole model; those that an export has left half are deleted."""
    done: set[str] = set()
    token = None
    while True:
        page = client.search_logged_models(
            [experiment], f"source_run_id = '{run}'", max_results=_PAGE, page_token=token
        )
        for model in page:
            if model.status == "READY":
                done.add(model.tags.get(_ATTEMPT, ""))
            elif _ATTEMPT in model.tags:
                client.delete_logged_model(model.model_id)
        token = page.token
        if not token:
            return done


def _add_model(client: Any, experiment: str, run: str, step: Step) -> None:
    assert step.info is not None  # line_of() gives no other
    tags = {_name(name): _tag(value) for name, value in step.tags.items()}
    tags |= {_ATTEMPT: step.attempt, _STEP: str(step.step), _PATH: _tag(step.info.path)}
    metrics = metrics_of(step)
    odd = [f"{name}={value}" for name, value in metrics.items() if not math.isfinite(value)]
    if odd:
        tags[_NOT_FINITE] = _tag(", ".join(odd))
    model = client.create_logged_model(
        experiment, name=f"step-{step.step}", source_run_id=run, tags=tags
    )
    for name, value in metrics.items():
        # MLflow's SQL stores make 0 of a model's NaN; of a run they keep it.
        owner = model.model_id if math.isfinite(value) else None
        client.log_metric(
            run, _name(name), value, timestamp=step.time_micros // 1000, step=step.step,
            model_id=owner,
        )  # fmt: skip
    client.finalize_logged_model(model.model_id, "READY")


def _name(text: str) -> str:
    return _ODD.sub("_", text)[:250] or "_"


def _tag(text: str) -> str:
    return text.encode(errors="replace").decode()[:_VALUE_MAX]
