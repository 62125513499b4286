"""The helper of training jobs, in real processes: its reports to Berth, and the requests it receives."""

from __future__ import annotations

import ast
import contextlib
import json
import shutil
import signal
import socketserver
import ssl
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import inf
from pathlib import Path
from typing import Any

import pytest
import yaml

from api import checkpoint
from api.http.certificates import make_authority, make_leaf
from api.wire.pod_tokens import AUDIENCE

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60.0


@dataclass
class Berth:
    """A server that records reported checkpoints and starts, and responds with `status`."""

    url: str = ""
    status: int = 204
    reports: list[dict[str, Any]] = field(default_factory=list)
    starts: list[str] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    server: ThreadingHTTPServer | None = None


@pytest.fixture
def berth() -> Iterator[Berth]:
    noted = Berth()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if self.path.startswith("/elsewhere"):
                self.send_response(302)
                self.send_header("Location", "/v1/checkpoints")
                self.end_headers()
                return
            assert self.path == "/v1/checkpoints"
            report = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if "resumedAt" in report:
                noted.starts.append(report["resumedAt"])
            else:
                noted.reports.append(report)
            noted.tokens.add(self.headers["Authorization"])
            self.send_response(noted.status)
            self.end_headers()
            self.wfile.write(b"no such job" if noted.status >= 400 else b"")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    noted.server = server
    noted.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, name="berth")
    thread.start()
    yield noted
    server.shutdown()
    thread.join()
    server.server_close()


def serve_tls(berth: Berth, folder: Path) -> Path:
    """Let it serve TLS from now on. Return the file of its authority."""
    assert berth.server is not None
    authority = make_authority(now=time.time())
    leaf = make_leaf(authority, ["127.0.0.1"], now=time.time())
    (folder / "ca.crt").write_bytes(authority.certificate)
    (folder / "server.pem").write_bytes(leaf.certificate + leaf.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    berth.server.socket = context.wrap_socket(berth.server.socket, server_side=True)
    berth.url = berth.url.replace("http://", "https://")
    return folder / "ca.crt"


@dataclass
class Image:
    """A container image in small: the helper and the loop copied alone, a token, a file of annotations."""

    folder: Path
    berth: Berth
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint.json"

    def run(self, *arguments: str, code: str | None = None, **environment: str) -> subprocess.Popen[str]:
        what = ["-c", code] if code else [str(self.folder / "loop.py"), str(self.checkpoint), *arguments]
        process = subprocess.Popen(
            [sys.executable, "-S", *what],
            cwd=self.folder,
            env={
                "BERTH_URL": self.berth.url,
                "BERTH_TOKEN_FILE": str(self.folder / "token"),
                "BERTH_PODINFO": str(self.folder / "annotations"),
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def annotate(self, **annotations: str) -> None:
        """Write the file as the kubelet does: whole, and renamed into place."""
        lines = [f'berth.dev/{key.replace("_", "-")}="{value}"' for key, value in annotations.items()]
        (self.folder / "new").write_text("\n".join(['app="train \\"a\\""', *lines]))
        (self.folder / "new").replace(self.folder / "annotations")

    def step(self) -> int:
        return int(json.loads(self.checkpoint.read_text())["step"]) if self.checkpoint.exists() else 0


@pytest.fixture
def image(tmp_path: Path, berth: Berth) -> Iterator[Image]:
    shutil.copy(ROOT / "api/checkpoint.py", tmp_path / "berth_checkpoint.py")
    shutil.copy(ROOT / "examples/checkpoint_loop.py", tmp_path / "loop.py")
    (tmp_path / "token").write_text("secret\n")
    image = Image(tmp_path, berth)
    yield image
    for process in image.processes:
        process.kill()
        process.communicate()


def wait(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, "not seen in time"
        time.sleep(0.01)


ENDLESS = ("--steps", "1000000", "--step-seconds", "0.01", "--save-every", "1000000")


def test_a_loop_reports_its_checkpoints(image: Image, berth: Berth) -> None:
    process = image.run("--steps", "25", "--step-seconds", "0", "--save-every", "10")

    out, err = process.communicate(timeout=PATIENCE_SECONDS)

    said = ["starts at step 0", "saved step 10", "saved step 20", "saved step 25", "ends at step 25"]
    assert out.splitlines() == said
    assert ([one["step"] for one in berth.reports], berth.tokens, err) == (
        [10, 20, 25],
        {"Bearer secret"},
        "",
    )
    assert len(berth.starts) == 1
    assert all(one["saveSeconds"] >= 0 and one["time"].endswith("Z") for one in berth.reports)


def test_a_request_by_annotation_is_saved_once_and_training_goes_on(image: Image, berth: Berth) -> None:
    process = image.run(*ENDLESS)
    assert process.stdout is not None
    process.stdout.readline()

    image.annotate(checkpoint_requested_at="2026-01-15T12:00:00Z", checkpoint_deadline="2026-01-15T12:02:00Z")
    wait(lambda: berth.reports)
    first = image.step()
    image.annotate(checkpoint_requested_at="2026-01-15T13:00:00Z")
    wait(lambda: image.step() > first)

    assert process.poll() is None
    assert [one["step"] for one in berth.reports][:1] == [first]
    assert len(berth.reports) <= 2


def test_a_checkpoint_answers_its_request_though_the_clock_of_the_pod_is_slow(
    image: Image, berth: Berth
) -> None:
    asked = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 40))
    image.annotate(checkpoint_requested_at=asked)

    image.run(code="import berth_checkpoint as b; b.saved(1); b.requested(); b.saved(2)").communicate(
        timeout=60
    )

    before, after = (one["time"] for one in berth.reports)
    assert before < asked == after


def test_sigterm_saves_and_the_next_pod_resumes_there(image: Image) -> None:
    process = image.run(*ENDLESS[:-1], "5")
    wait(lambda: image.step() > 0)  # by now it has looked for requests, so that it handles SIGTERM

    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_SECONDS)

    saved = image.step()
    again = image.run("--steps", str(saved + 3), "--step-seconds", "0")
    out, _ = again.communicate(timeout=PATIENCE_SECONDS)
    # Not in success, which would say that all is done.
    assert (process.returncode, saved > 0, again.returncode) == (143, True, 0)
    assert out.splitlines()[0] == f"starts at step {saved}"


@pytest.mark.parametrize(
    ("broken", "want"),
    [
        pytest.param(404, "answers 404: no such job; training goes on", id="Berth refuses"),
        pytest.param(None, "cannot be reached", id="Berth is not there"),
    ],
)
def test_a_report_that_does_not_arrive_is_said_once(
    broken: int | None, want: str, image: Image, berth: Berth
) -> None:
    berth.status = broken or 204
    if broken is None:
        berth.url = "http://127.0.0.1:1"

    process = image.run("--steps", "9", "--step-seconds", "0", "--save-every", "3")
    out, err = process.communicate(timeout=PATIENCE_SECONDS)

    assert out.splitlines()[-1] == "ends at step 9"
    assert (err.count(want), len(err.splitlines())) == (1, 1)


def test_a_report_is_sent_by_tls_to_a_server_of_the_authority(image: Image, berth: Berth) -> None:
    authority = serve_tls(berth, image.folder)

    process = image.run("--steps", "3", "--step-seconds", "0", BERTH_CA_FILE=str(authority))
    _, err = process.communicate(timeout=PATIENCE_SECONDS)

    assert err == ""
    assert berth.tokens == {"Bearer secret"}


@pytest.mark.parametrize(
    ("authority", "want"),
    [
        pytest.param(None, "CERTIFICATE_VERIFY_FAILED", id="no authority is given"),
        pytest.param("missing.crt", "the authority in missing.crt cannot be read", id="its file is missing"),
        pytest.param("token", "the authority in token cannot be read", id="its file holds something else"),
    ],
)
def test_no_token_is_sent_to_a_server_that_does_not_prove_its_name(
    authority: str | None, want: str, image: Image, berth: Berth
) -> None:
    serve_tls(berth, image.folder)
    given = {} if authority is None else {"BERTH_CA_FILE": authority}

    process = image.run("--steps", "3", "--step-seconds", "0", **given)
    out, err = process.communicate(timeout=PATIENCE_SECONDS)

    assert out.splitlines()[-1] == "ends at step 3"
    assert want in err
    assert berth.tokens == set()


def test_a_folder_that_cannot_be_written_to_is_found_out_before_the_training(image: Image) -> None:
    process = image.run(
        code=f"import sys, loop; sys.argv[1:] = [{str(image.folder / 'none/c')!r}]; loop.main()"
    )

    out, err = process.communicate(timeout=PATIENCE_SECONDS)

    assert (out, process.returncode) == ("", 1)
    assert "none/c.new" in err


@pytest.fixture
def mute_port() -> Iterator[int]:
    """A server that does not speak HTTP: it greets each client and closes the connection."""

    class Greeter(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            # Read first: to close with bytes unread would reset the connection, which is another fault.
            self.request.recv(65536)
            self.request.sendall(b"SSH-2.0-x\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Greeter) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


@pytest.fixture
def dripping_port() -> Iterator[int]:
    """A server that responds forever, byte by byte: each arrives before the timeout of a read."""
    is_over = threading.Event()

    class Dripper(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(65536)
            self.request.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
            # The client has given up and closed the connection.
            with contextlib.suppress(OSError):
                while not is_over.wait(0.1):
                    self.request.sendall(b"x")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Dripper) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_address[1]
        is_over.set()
        server.shutdown()
        thread.join()


def test_a_server_without_http_ends_no_training(image: Image, berth: Berth, mute_port: int) -> None:
    berth.url = f"http://127.0.0.1:{mute_port}"

    out, err = image.run(code="import berth_checkpoint as b; print(b.saved(1))").communicate(timeout=60)

    assert out == "False\n"
    assert "cannot be reached: SSH-2.0-x" in err


def test_a_url_that_is_none_ends_no_training(image: Image, berth: Berth) -> None:
    berth.url = "http://berth controller:8090"

    out, err = image.run(code="import berth_checkpoint as b; print(b.saved(1))").communicate(timeout=60)

    assert out == "False\n"
    assert "cannot be reached" in err


def test_without_a_cluster_nothing_is_asked_or_reported(image: Image, berth: Berth) -> None:
    (image.folder / "token").unlink()
    code = "import berth_checkpoint as b; print(b.requested(), b.deadline(), b.stopping(), b.saved(1))"

    out, err = image.run(code=code).communicate(timeout=PATIENCE_SECONDS)

    assert (out, err, berth.reports) == ("False None False False\n", "", [])


def test_an_annotation_that_is_no_time_is_named(image: Image) -> None:
    image.annotate(checkpoint_requested_at="soon")

    out, err = image.run(code="import berth_checkpoint as b; print(b.requested())").communicate(timeout=60)

    assert out == "False\n"
    assert 'the annotation berth.dev/checkpoint-requested-at is "soon", not a time such as' in err


def test_a_handler_of_the_framework_is_called_as_well(image: Image) -> None:
    code = (
        "import signal, os, berth_checkpoint as b\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('framework'))\n"
        "print(b.requested())\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "print(b.requested(), b.stopping())\n"
        "b.saved(1)\n"
        "print(b.requested(), b.stopping())"
    )

    out, _ = image.run(code=code).communicate(timeout=PATIENCE_SECONDS)

    assert out.splitlines() == ["False", "framework", "True True", "False True"]


def test_a_handler_that_a_framework_sets_later_hides_nothing(image: Image) -> None:
    code = (
        "import signal, os, berth_checkpoint as b\n"
        "b.requested()\n"
        "ours = signal.signal(signal.SIGTERM, lambda *_: print('framework'))\n"
        "b.requested()\n"
        "os.kill(os.getpid(), signal.SIGTERM)\n"
        "print(b.requested(), b.stopping())\n"
        # And put back when its training is over.
        "signal.signal(signal.SIGTERM, ours)\n"
        "b.requested()\n"
        "print(signal.getsignal(signal.SIGTERM) is ours)"
    )

    out, err = image.run(code=code).communicate(timeout=PATIENCE_SECONDS)

    assert (out.splitlines(), err) == (["framework", "True True", "True"], "")


FORKED = """
import multiprocessing, signal, time, berth_checkpoint as b
fork = multiprocessing.get_context("fork")

def work(ready, is_training):
    if is_training:
        b.requested()
    ready.put(1)
    while not (is_training and b.stopping()):
        time.sleep(0.01)

b.requested()
for is_training in (False, True):
    ready = fork.Queue()
    child = fork.Process(target=work, args=(ready, is_training))
    child.start()
    ready.get()
    child.terminate()
    child.join(10)
    print(child.exitcode)
    child.kill()
print(b.stopping())
"""


def test_a_forked_worker_ends_at_sigterm_as_ever_unless_it_trains_itself(image: Image) -> None:
    out, err = image.run(code=FORKED).communicate(timeout=PATIENCE_SECONDS)

    assert (out.splitlines(), err) == (["-15", "0", "False"], "")


def test_a_file_of_annotations_that_is_no_text_ends_no_training(image: Image) -> None:
    asked = b'berth.dev/checkpoint-requested-at="2026-01-15T12:00:00Z"\n'
    (image.folder / "annotations").write_bytes(b'name="caf\xe9"\n' + asked + b'half="\xc3')

    out, err = image.run(code="import berth_checkpoint as b; print(b.requested())").communicate(timeout=60)

    assert (out, err) == ("True\n", "")


def test_a_report_takes_no_proxy_and_follows_no_redirect(image: Image, berth: Berth) -> None:
    code = (
        "import os, berth_checkpoint as b\n"
        "print(b.saved(1))\n"
        f"os.environ['BERTH_URL'] = {berth.url!r} + '/elsewhere'\n"
        "print(b.saved(2))"
    )

    out, err = image.run(code=code, http_proxy="http://127.0.0.1:1").communicate(timeout=60)

    assert (out, [one["step"] for one in berth.reports]) == ("True\nFalse\n", [1])
    assert "answers 302" in err


def test_a_slow_answer_delays_training_for_seconds_only(
    image: Image, berth: Berth, dripping_port: int
) -> None:
    berth.url = f"http://127.0.0.1:{dripping_port}"

    out, err = image.run(code="import berth_checkpoint as b; print(b.saved(1))").communicate(timeout=60)

    assert out == "False\n"
    assert "does not answer within 2 s" in err


def test_a_last_report_may_come_while_the_interpreter_ends(image: Image, berth: Berth) -> None:
    code = "import atexit, berth_checkpoint as b; atexit.register(b.saved, 7)"

    _, err = image.run(code=code).communicate(timeout=PATIENCE_SECONDS)

    assert ([one["step"] for one in berth.reports], err) == ([7], "")


def test_the_helper_runs_on_the_python_of_old_images() -> None:
    ast.parse(Path(checkpoint.__file__).read_text(), feature_version=(3, 8))


@pytest.mark.slow
def test_the_example_mounts_what_the_helper_reads_where_it_looks() -> None:
    (_, job) = yaml.safe_load_all((ROOT / "examples/training.yaml").read_text())
    spec = job["spec"]["template"]["spec"]
    mounts = {one["name"]: one["mountPath"] for one in spec["containers"][0]["volumeMounts"]}
    volumes = {one["name"]: one for one in spec["volumes"]}

    (item,) = volumes["podinfo"]["downwardAPI"]["items"]
    assert f"{mounts['podinfo']}/{item['path']}" == checkpoint._ANNOTATIONS_FILE
    assert item["fieldRef"] == {"fieldPath": "metadata.annotations"}
    token = volumes["berth-token"]["projected"]["sources"][0]["serviceAccountToken"]
    assert f"{mounts['berth-token']}/{token['path']}" == checkpoint._TOKEN_FILES[0]
    assert token["audience"] == AUDIENCE


@pytest.mark.slow
def test_its_distribution_is_that_file_alone_for_any_python_since_3_8(tmp_path: Path) -> None:
    # Copied as a checkout on another machine: links are followed.
    source = shutil.copytree(
        ROOT / "checkpoint", tmp_path / "source", ignore=shutil.ignore_patterns("build", "*.egg-info")
    )
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--no-build-isolation", "-w", str(tmp_path), str(source)], check=True)
    (wheel,) = tmp_path.glob("berth_checkpoint-*-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name).decode() for name in archive.namelist()}
    (metadata,) = (text for name, text in files.items() if name.endswith("/METADATA"))

    assert [name for name in files if ".dist-info/" not in name] == ["berth_checkpoint.py"]
    assert files["berth_checkpoint.py"] == (ROOT / "api/checkpoint.py").read_text()
    assert "Requires-Python: >=3.8\n" in metadata
    assert "Requires-Dist" not in metadata
    ast.parse(files["berth_checkpoint.py"], feature_version=(3, 8))


def watched(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """Return the list that gets all reports of a process that has just begun."""
    sent = list[dict[str, object]]()

    def send(report: dict[str, object]) -> bool:
        sent.append(report)
        return True

    monkeypatch.setattr(checkpoint, "_state", checkpoint._State())
    monkeypatch.setattr(checkpoint, "_send", send)
    return sent


def test_the_expected_end_follows_from_the_speed_and_is_reported_once_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, sent, told = [1000.0], watched(monkeypatch), []
    monkeypatch.setattr("api.checkpoint.time.monotonic", lambda: clock[0])
    for second, step in ((0, 100), (30, 130), (60, 160), (90, 200), (120, 340)):
        clock[0] = 1000.0 + second
        told.append(checkpoint.progress(step, 1000))

    assert told == [False, False, True, False, True]
    assert sent == [{"remainingSeconds": 840}, {"remainingSeconds": 330}]


BEYOND_FLOATS = 10**400


@pytest.mark.parametrize(
    ("calls", "sent", "complaints"),
    [
        pytest.param([(0, 100), (float("nan"), 100), (50, 100)], [120], 1, id="not a number in between"),
        pytest.param([(float("nan"), 100), (0, 100), (50, 100)], [60], 1, id="not a number at first"),
        pytest.param([(0, 100), (50, inf)], [], 1, id="an endless total"),
        pytest.param([(0, 100), (inf, 100)], [], 1, id="endlessly much done"),
        pytest.param([(0, 100), (-inf, 100)], [], 1, id="less than nothing done"),
        pytest.param([(0, 100), (1, BEYOND_FLOATS)], [], 1, id="a total beyond floats"),
        pytest.param([(0, 1e308), (1e-300, 1e308)], [], 0, id="a remaining time beyond floats"),
        pytest.param([(0, 100), ("half", 100), (None, 100), (50, [100])], [], 3, id="no numbers"),
        pytest.param([("0", "100"), ("50", "100")], [60], 0, id="numbers as text"),
        pytest.param([(0, 0), (50, 0)], [], 0, id="a total of nothing"),
        pytest.param([(0, -1), (50, -1)], [], 0, id="a negative total"),
        pytest.param([(0, 100), (120, 100)], [0], 0, id="more done than there was"),
        pytest.param([(50, 100), (0, 100), (50, 100)], [], 0, id="work that went back"),
    ],
)
def test_progress_raises_no_exception_and_reports_only_what_follows_from_numbers(
    calls: list[tuple[Any, Any]],
    sent: list[int],
    complaints: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    reports, told = watched(monkeypatch), []
    for minute, (done, total) in enumerate(calls):
        monkeypatch.setattr("api.checkpoint.time.monotonic", lambda at=1000.0 + 60 * minute: at)
        told.append(checkpoint.progress(done, total))

    assert reports == [{"remainingSeconds": one} for one in sent]
    assert sum(told) == len(sent)
    assert capsys.readouterr().err.count("must be a finite number") == complaints


@pytest.mark.parametrize(
    ("step", "save_seconds", "want"),
    [
        pytest.param(7.0, "2.5", {"step": 7, "saveSeconds": 2.5}, id="numbers"),
        pytest.param(7, float("nan"), {"step": 7}, id="no length of the save"),
        pytest.param(float("nan"), 2.5, None, id="not a number as step"),
        pytest.param(inf, 2.5, None, id="an endless step"),
        pytest.param("last", 2.5, None, id="a word as step"),
        pytest.param(None, 2.5, None, id="no step"),
    ],
)
def test_saved_raises_no_exception(
    step: Any, save_seconds: Any, want: dict[str, object] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    reports = watched(monkeypatch)

    assert checkpoint.saved(step, save_seconds=save_seconds) is (want is not None)
    assert [{key: value for key, value in one.items() if key != "time"} for one in reports] == (
        [want] if want is not None else []
    )
