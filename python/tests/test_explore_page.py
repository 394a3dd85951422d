"""The page of `deepfreeze explore`: its server's answers to strangers, and its single file."""

from __future__ import annotations

import argparse
import base64
import hashlib
import http.client
import json
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest
from explore_kit import answers, contents, save_all, serving, weights

import deepfreeze as df
from deepfreeze.errors import CheckpointError
from deepfreeze.exploring import command, page_files, single_file
from deepfreeze.exploring.answers import Answers
from deepfreeze.exploring.cache import Cache, StoredStep
from deepfreeze.exploring.discovering import runs_of
from deepfreeze.exploring.runs import read_runs
from deepfreeze.exploring.server import PageServer
from deepfreeze.exploring.tensor_reading import Buffer

NODE = shutil.which("node") or shutil.which("nodejs")
needs_node = pytest.mark.skipif(
    NODE is None, reason="LEFT OUT: no node here, so functions of the page run nowhere"
)
EVIL = "<img src=x onerror=alert(1)></script><script>alert(2)</script>&\u2028"


@contextmanager
def served(tmp_path: Path) -> Iterator[PageServer]:
    save_all(tmp_path / "run", {1: weights(1)})
    with serving(answers(tmp_path / "cache", tmp_path / "run")) as server:
        yield server


def ask(
    server: PageServer, path: str, method: str = "GET", **headers: str
) -> http.client.HTTPResponse:
    """One request, as a browser makes it, with other headers if they are given."""
    link = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    link.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        link.putheader(name.replace("_", "-"), value)
    link.endheaders()
    answer = link.getresponse()
    answer.body = answer.read()  # type: ignore[attr-defined]
    link.close()
    return answer


def cookie_of(server: PageServer) -> str:
    answer = ask(server, server.url.partition(str(server.server_port))[2])
    assert (answer.status, answer.getheader("Location")) == (303, "/")
    cookie = answer.getheader("Set-Cookie") or ""
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    return cookie.partition(";")[0]


def test_the_token_works_once_and_becomes_a_cookie(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        url = server.url.partition(str(server.server_port))[2]
        assert ask(server, "/").status == 403
        assert ask(server, "/?token=wrong").status == 403
        assert ask(server, "/?token=").status == 403
        cookie = cookie_of(server)
        assert ask(server, url).status == 403, "it was used"
        assert ask(server, "/", Cookie=cookie).status == 200
        assert ask(server, "/", Cookie=cookie[:-1] + "?").status == 403
        assert ask(server, "/api/model").status == 403
        answer = ask(server, "/api/model", Cookie=cookie)
        model = json.loads(answer.body)  # type: ignore[attr-defined]
        assert [step["step"] for step in model["runs"][0]["steps"]] == [1]


def test_asking_for_the_head_does_not_use_up_the_token(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        url = server.url.partition(str(server.server_port))[2]
        assert ask(server, url, "HEAD").status == 403
        cookie_of(server)


def test_the_token_is_on_no_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    told: list[tuple[str, str, int]] = []

    def browse(url: str) -> bool:
        path = Path(unquote(urlsplit(url).path))
        told.append((url, path.read_text(), path.stat().st_mode & 0o777))
        return True

    monkeypatch.setattr("webbrowser.open", browse)
    monkeypatch.setattr(PageServer, "serve_forever", lambda *_, **__: None)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    save_all(tmp_path / "run", {1: weights(1)})
    parser = argparse.ArgumentParser()
    command.add_to(parser.add_subparsers())
    words = ["explore", str(tmp_path / "run"), "--cache", str(tmp_path / "cache")]
    options = parser.parse_args(words)
    assert options.main(options) == 0
    ((url, text, mode),) = told
    assert (urlsplit(url).scheme, "token=" in url, mode) == ("file", False, 0o600)
    assert "/?token=" in text
    assert not list(tmp_path.glob("*.html")), "it is gone with the page"


def test_cookies_of_other_programs_are_passed_over(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        cookie = cookie_of(server)
        for other in ('a={"b": 1}', "a[0]=1", "=", "x", "a=1, 2", 'a="'):
            for header in (f"{other}; {cookie}", f"{cookie}; {other}", f"{other};{cookie};"):
                assert ask(server, "/api/model", Cookie=header).status == 200, header
            assert ask(server, "/api/model", Cookie=other).status == 403
        assert ask(server, "/api/model", Cookie=f"x{cookie}").status == 403


def test_an_error_of_the_program_is_answered_and_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with served(tmp_path) as server:
        cookie = cookie_of(server)

        def fail(_: list[str]) -> Any:
            raise ZeroDivisionError("by a bug")

        monkeypatch.setattr(server.answers, "of", fail)
        answer = ask(server, "/api/model", Cookie=cookie)
        assert answer.status == 500
        error = json.loads(answer.body)["error"]  # type: ignore[attr-defined]
        assert error["code"] == "internal"
        assert "by a bug" in caplog.text


def test_a_long_answer_is_sent_in_chunks_each_with_its_own_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = bytes(range(256)) * 1000
    with served(tmp_path) as server:
        cookie = cookie_of(server)
        sizes: list[int] = []
        real = socket.socket.sendall

        def counted(self: socket.socket, data: bytes) -> None:
            sizes.append(len(data))
            real(self, data)

        monkeypatch.setattr(server.answers, "of", lambda _: ("application/octet-stream", data))
        monkeypatch.setattr(socket.socket, "sendall", counted)
        assert ask(server, "/api/model", Cookie=cookie).body == data  # type: ignore[attr-defined]
        assert max(sizes) <= 1 << 16
        assert sum(sizes) > len(data)


def test_no_run_is_written_to(tmp_path: Path) -> None:
    run = tmp_path / "run"
    save_all(run, {step: weights(step) for step in (1, 2, 3)}, statistics=True)
    before = contents(run)
    made = answers(tmp_path / "cache", run)
    with serving(made) as server:
        cookie = cookie_of(server)
        found = made.runs[0]
        first, last = found.steps[0].attempt, found.steps[-1].attempt
        words = ["model", "progress", f"tensors/{found.id}", f"matrix/{found.id}/norm"]
        words += [f"tensor/{found.id}/0", f"flags/{found.id}"]
        words += [f"compare/{found.id}/{first}/{found.id}/{last}"]
        for word in words:
            assert ask(server, f"/api/{word}", Cookie=cookie).status == 200, word
    single_file.write(tmp_path / "page.html", made)
    told = call(str(run), "--cache", str(tmp_path / "other"), "--html", str(tmp_path / "page.html"))
    assert told.returncode == 0
    assert before == contents(run)


def test_strangers_get_nothing(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        own = {"Cookie": cookie_of(server)}
        port = server.server_port
        for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}"):
            assert ask(server, "/api/model", Host=host, **own).status == 421, host
        for origin in ("http://evil.example", f"http://localhost:{port}", "null", ""):
            assert ask(server, "/api/model", Origin=origin, **own).status == 403, origin
        mine = ask(server, "/api/model", Origin=f"http://127.0.0.1:{port}", **own)
        assert mine.status == 200
        other = {"Host": f"localhost:{port}", "Origin": f"http://localhost:{port}"}
        assert ask(server, "/api/model", **other, **own).status == 200
        for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            assert ask(server, "/api/model", method, **own).status == 405
        assert ask(server, "/api/model", "HEAD", **own).body == b""  # type: ignore[attr-defined]
        assert ask(server, "/api/model", "BREW", **own).status == 501


@pytest.mark.parametrize("path", [
    "/../etc/passwd", "/..%2f..%2fetc%2fpasswd", "/api/..%2fmodel", "/api/tensors/..%2f..%2f",
    "/api/matrix/x/norm", "/api/", "/api//", "/api/model/", "/main.js/", "/server.py",
    "/style.css%00", "/api/model?x=1", "//evil.example/", "/api/" + "a/" * 50,
    "/api/tensor/RUN/-1", "/api/tensor/RUN/9", "/api/tensor/RUN/1e0", "/api/matrix/RUN/__class__",
    "/api/numbers/RUN", "/api/compare/RUN/x/RUN/y", "/api/stop",
])  # fmt: skip
def test_no_other_address_is_answered(tmp_path: Path, path: str) -> None:
    with served(tmp_path) as server:
        path = path.replace("RUN", server.answers.runs[0].id)
        answer = ask(server, path, Cookie=cookie_of(server))
        assert answer.status == 404
        assert str(tmp_path).encode() not in answer.body  # type: ignore[attr-defined]


def test_long_requests_are_refused(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        cookie = cookie_of(server)
        assert ask(server, "/" + "a" * 9000, Cookie=cookie).status == 414
        many = {f"X-{number}": "y" for number in range(80)}
        assert ask(server, "/", Cookie=cookie, **many).status == 431
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=10) as raw:
            raw.sendall(b"GET / HTTP/1.1\r\n" + b"X: " + b"y" * 100_000 + b"\r\n\r\n")
            assert b"431" in raw.recv(100)


def test_every_answer_forbids_what_the_page_does_not_need(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        cookie = cookie_of(server)
        for path in ("/", "/main.js", "/api/model", "/nowhere"):
            answer = ask(server, path, Cookie=cookie)
            policy = answer.getheader("Content-Security-Policy") or ""
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.getheader("X-Content-Type-Options") == "nosniff"
            assert answer.getheader("Cache-Control") == "no-store"
        assert server.server_address[0] == "127.0.0.1"


def evil_run(tmp_path: Path) -> Path:
    run = tmp_path / f"run {EVIL.replace('/', '_')}"
    with df.Checkpointer(run) as ckpt:
        state: dict[str, Any] = {EVIL: np.ones(3, "f4"), "note": EVIL}
        ckpt.save(1, state, metrics={EVIL: 1.0, "loss": float("nan")}, tags={EVIL: EVIL}).wait()
        ckpt.save(2, {**state, "note": "</script>"}).wait()
    return run


def test_the_single_file_has_no_reference_and_evil_names_are_data(tmp_path: Path) -> None:
    made = answers(tmp_path / "cache", evil_run(tmp_path))
    text = single_file.page(made)
    assert not re.search(r"""(src|href)=(?!["']?data:)""", text.split('id="data">')[0])
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", text, re.DOTALL)
    assert [attributes for attributes, _ in scripts] == [
        ' type="application/json" id="data"', ' type="module"',
    ]  # fmt: skip
    data, script = scripts[0][1], scripts[1][1]
    assert not set("<>&\u2028") & set(data)
    found = json.loads(data)
    assert found["model"]["runs"][0]["steps"][0]["tags"] == {EVIL: EVIL}
    assert not re.search(r"\bimport\b|\bexport\b|https?://(?!www\.w3\.org/2000/svg)", script)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in text
    assert "connect-src" not in text.partition("</head>")[0], "default-src is none"


def test_the_single_file_reads_the_histograms_of_a_step_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_all(tmp_path / "run", {step: weights(step, 3 + step) for step in (1, 2, 3, 4)})
    made = answers(tmp_path / "cache", tmp_path / "run")
    reads: list[Path] = []
    real = StoredStep.histograms

    def counted(self: StoredStep) -> Any:
        reads.append(self._path)
        return real(self)

    monkeypatch.setattr(StoredStep, "histograms", counted)
    monkeypatch.setattr(single_file, "_HISTOGRAM_STEPS_MAX", 3)
    monkeypatch.setattr(single_file, "_pairs", lambda _: [])
    text = single_file.page(made)
    assert len(reads) == len(set(reads)) == 3
    data = json.loads(text.partition('id="data">')[2].partition("</script>")[0])
    run = made.runs[0].id
    packed = data[f"histograms/{run}"]
    found = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), np.uint8)
    numbers = made.numbers(run)
    expected = [numbers.histograms(place)[packed["columns"]] for place in range(7)]
    np.testing.assert_array_equal(found, np.array(expected).ravel())
    assert found.any()


def test_the_page_makes_elements_of_text_only() -> None:
    for name in page_files.MODULES:
        text = page_files.text_of(name)
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|"
            r"createContextualFragment|setAttribute\(.style|style=",
            text,
        ), name


def test_modules_can_be_one_script() -> None:
    names: Counter[str] = Counter()
    for place, module in enumerate(page_files.MODULES):
        text = page_files.text_of(module)
        names.update(
            re.findall(r"^(?:export )?(?:async )?(?:function|class|const|let) (\w+)", text, re.M)
        )
        imported = re.findall(r'from "\./(\w+\.js)"', text)
        assert set(imported) <= set(page_files.MODULES[:place]), module
    assert [name for name, count in names.items() if count > 1] == []
    assert sum(len(data) for _, data in page_files.served().values()) < 250_000


def by_node(folder: Path, script: str) -> Any:
    """The output, from JSON, of a script that imports the page's modules."""
    for name in page_files.MODULES:
        (folder / name).write_text(page_files.text_of(name), encoding="utf-8")
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "test.mjs").write_text(script)
    done = subprocess.run(
        [str(NODE), str(folder / "test.mjs")],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_node
def test_ticks_end_whatever_the_values_are(tmp_path: Path) -> None:
    script = """
    import { axesOf, niceTicks } from "./chart.js";
    const pairs = [[1 - 2 ** -53, 1], [1 - 2 ** -52, 1], [2 ** 53, 2 ** 53 + 2], [0, 0],
      [5e-324, 1e-323], [-1e308, 1e308], [0, 1], [-3, 17], [0.02, 0.031]];
    const found = pairs.map(([low, high]) => niceTicks(low, high, 5));
    const axes = axesOf([{ points: [[1, 1 - 2 ** -53], [2, 1]] }], false);
    console.log(JSON.stringify({ found, axes }));
    """
    told = by_node(tmp_path, script)
    assert max(map(len, told["found"])) <= 7
    assert told["found"][-3:] == [
        [0, 0.2, 0.4, 0.6, 0.8, 1], [0, 5, 10, 15], [0.02, 0.025, 0.03],
    ]  # fmt: skip
    assert told["axes"]["y1"] - told["axes"]["y0"] > 0.1


@needs_node
def test_no_number_that_came_meanwhile_is_missed_by_the_page(tmp_path: Path) -> None:
    script = """
    import { follow } from "./polling.js";
    const told = [];
    const found = [[1, 5], [1, 6], [2, 6], [9, 6]];
    const busy = [false, true, true, true, true, false];
    const times = { progress: 0, pause: 0 };
    await follow({
      progress: async () => {
        const [a, b] = found[times.progress++];
        const runs = { a: { revision: a }, b: { revision: b } };
        return { computing: times.progress < found.length, runs };
      },
      runs: [{ id: "a" }, { id: "b" }],
      forget: (run) => told.push(run.id),
      tell: () => told.push("."),
      isBusy: () => busy.shift(),
      redraw: async () => told.push("draw"),
      pause: async () => (times.pause += 1),
    });
    console.log(JSON.stringify({ told, times }));
    """
    told = by_node(tmp_path, script)
    order = ["a", "b", ".", "draw", "b", ".", "a", ".", "a", "b", ".", "draw"]
    assert told == {"told": order, "times": {"progress": 4, "pause": 6}}


def call(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deepfreeze", "explore", *words],
        capture_output=True, text=True, check=False, env=environment or None,
    )  # fmt: skip


def test_the_command_writes_a_file_and_prints_json(tmp_path: Path) -> None:
    save_all(tmp_path / "run", {step: weights(step) for step in (1, 2)})
    words = [str(tmp_path / "run"), "--cache", str(tmp_path / "cache")]
    made = call(*words, "--html", str(tmp_path / "page.html"))
    assert made.returncode == 0, made.stderr
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    printed = call(*words, "--json")
    (run,) = json.loads(printed.stdout)["runs"]
    expected = np.linalg.norm(weights(2)["model"]["layer0"])
    assert run["numbers"]["norm"][0][1] == pytest.approx(float(expected), rel=1e-6)
    assert run["numbers"]["delta"][0][0] is None


def test_without_reading_it_has_what_headers_say(tmp_path: Path) -> None:
    save_all(tmp_path / "run", {1: weights(1)}, statistics=True)
    told = call(str(tmp_path / "run"), "--cache", str(tmp_path / "cache"), "--no-read", "--json")
    (run,) = json.loads(told.stdout)["runs"]
    expected = float(weights(1)["model"]["layer0"].max())
    assert run["numbers"]["max"][0][0] == pytest.approx(expected, rel=1e-6)
    assert run["numbers"]["norm"][0][0] is None
    assert not (tmp_path / "cache").exists()


def test_without_reading_no_byte_of_a_tensor_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_all(tmp_path / "run", {step: weights(step) for step in (1, 2, 3)})
    runs = read_runs(runs_of([str(tmp_path / "run")]))
    reading = Answers(runs, Cache(tmp_path / "cache"))
    first, second, third = [(runs[0].id, step.attempt) for step in runs[0].steps]
    compared = reading.compare(*first, *second)

    def refuse(*_: Any) -> Any:
        pytest.fail("it reads")

    monkeypatch.setattr(Buffer, "read", refuse)
    made = Answers(runs, Cache(tmp_path / "cache"), reads=False)
    made.begin()
    made.stop()
    assert made.compare(*first, *second) == compared, "it is in the cache"
    with pytest.raises(CheckpointError, match="--no-read reads no tensors") as told:
        made.compare(*first, *third)
    assert told.value.code == "not_found"
    text = single_file.page(made)
    assert f"compare/{'/'.join((*second, *third))}" not in text
    assert not [run for run in made.runs if made.numbers(run.id).missing == []]


def test_what_is_no_run_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        told = call(str(path), "--json")
        assert told.returncode == 3
        assert json.loads(told.stdout)["error"]["code"] == "not_found"
        assert str(path) in told.stderr
    assert call().returncode == 2
    assert call(str(tmp_path), "--port", "99999").returncode == 2
