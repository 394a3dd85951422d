"""The page of `deepfreeze explore` in Chromium, if there is one: it draws, and stays inert."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from explore_kit import answers, named, serving

import deepfreeze as df
from deepfreeze.exploring import single_file
from deepfreeze.exploring.answers import Answers
from deepfreeze.exploring.opening import opened

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
EVIL = "<img src=x onerror=document.title=1>"

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="LEFT OUT: no Chromium here, so the scripts of the page run nowhere"
)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """A run with names of markup and a NaN step, and its fork."""
    folder = tmp_path_factory.mktemp("explored")
    tree = folder / "tree"
    for name, parent, steps in (("base", None, (1, 2, 3)), (EVIL, (tree / "base", 2), (3, 4))):
        with df.Checkpointer(tree / name, parent=parent, statistics=True) as ckpt:
            for step in steps:
                model = {EVIL: np.full(8, step, "f4"), "w": np.arange(8, dtype="f4") * step}
                if step == 4:
                    model["w"][3] = np.nan
                ckpt.save(step, {"model": model, "note": EVIL}, metrics={"loss": 1 / step}).wait()
    (tree / EVIL / "analysis").mkdir()
    names = {"title": EVIL, "names": [EVIL, "b"]}
    values = [[1, 0.5], [None, float("inf")]]
    record = {"format": 1, "title": f"Likeness {EVIL}", "about": EVIL, "value": EVIL,
              "rows": names, "columns": names, "values": values}  # fmt: skip
    (tree / EVIL / "analysis" / f"{EVIL}.json").write_text(json.dumps(record))
    (tree / EVIL / "analysis" / "x.json").write_text("{")
    return answers(folder / "cache", tree)


def drawn(profile: Path, url: str, errors: int = 0) -> str:
    """The document once the page has drawn; fails if the browser has an error to tell.

    `errors`: those that the page itself has to show.
    """
    done = subprocess.run(
        [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}",
         "--virtual-time-budget=5000", "--enable-logging=stderr", "--dump-dom", url],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    told = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    assert not told, told
    assert done.stdout.count('class="error"') == errors
    assert not re.search(r"<img|<script[^>]*>document", done.stdout)
    return done.stdout


@pytest.fixture(scope="module")
def page(made: Answers, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.html"
    single_file.write(path, made)
    return path


def views(made: Answers) -> Iterator[tuple[str, str]]:
    """Addresses, and a text that the view must hold."""
    fork = named(made.runs, EVIL)
    first, last = fork.steps[0].attempt, fork.steps[-1].attempt
    yield "#/runs", "2</b><span>runs"
    yield f"#/timeline/{fork.id}", "base (before the fork)"
    yield f"#/tensors/{fork.id}?kind=all&show=norm", "Heat map of"
    yield f"#/tensor/{fork.id}/model.w", "Ridgeline of"
    yield f"#/compare/{fork.id}/{first}/{fork.id}/{last}", "Weights that changed most"
    yield f"#/flags/{fork.id}", "first of the run: 1 of 8 elements"
    yield f"#/analysis/{fork.id}/{quote(EVIL, safe='')}", "Likeness &lt;img"
    yield f"#/analysis/{fork.id}", "Heat map of 2 rows over 2 columns"


def test_the_single_file_draws_every_view(made: Answers, page: Path, tmp_path: Path) -> None:
    for address, text in views(made):
        assert text in drawn(tmp_path, f"{page.as_uri()}{address}"), address


def test_a_result_that_can_not_be_drawn_says_why(made: Answers, page: Path, tmp_path: Path) -> None:
    fork = named(made.runs, EVIL)
    text = drawn(tmp_path, f"{page.as_uri()}#/analysis/{fork.id}/x", errors=1)
    assert "analysis/x.json: Expecting property name" in text


def test_the_file_that_opens_the_browser_leads_to_the_page(
    made: Answers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: texts.append(drawn(tmp_path, url)))
    with serving(made) as server, opened(server.url):
        assert "2</b><span>runs" in texts[0]


def test_the_served_page_draws_a_tensor_with_markup_for_a_name(
    made: Answers, tmp_path: Path
) -> None:
    fork = named(made.runs, EVIL)
    with serving(made) as server:
        key = quote(f"model.{EVIL}", safe="")
        text = drawn(tmp_path, f"{server.url}#/tensor/{fork.id}/{key}")
    assert "&lt;img src=x onerror=document.title=1&gt;</bdi></h1>" in text
