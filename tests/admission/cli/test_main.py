"""`berth`: every end of a command is an exit code and at most one sentence on stderr."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType

import pytest

from admission.cli.__main__ import COMMANDS, Command, main
from admission.cli.common.arguments import Subparsers, add_command
from admission.cli.common.errors import NotHoldingError, UnreachableError, WrongUsageError
from api.http.errors import ListenError
from api.kube.errors import InvalidKubeconfig, Unreachable
from queues.reservations.reservations import BadStoreUrl, StoreUnreachable


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException | int], None]:
    """Return a function that adds a command `probe` which raises or returns what it is given."""

    def add(outcome: BaseException | int) -> None:
        def run(_: argparse.Namespace) -> int:
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

        def add_parser(subparsers: Subparsers) -> None:
            add_command(subparsers, "probe", help_line="", description="", examples="", run=run)

        module = ModuleType("admission.cli.commands.probe")
        module.add_parser = add_parser  # type: ignore[attr-defined] # a module made for this test
        monkeypatch.setitem(sys.modules, "admission.cli.commands.probe", module)
        monkeypatch.setitem(COMMANDS, "probe", Command("probe", "a probe"))

    return add


@pytest.mark.parametrize(
    ("outcome", "want_code", "want_error"),
    [
        pytest.param(0, 0, "", id="done"),
        pytest.param(
            NotHoldingError("1 Job was lost"), 1, "1 Job was lost", id="what was asked does not hold"
        ),
        pytest.param(WrongUsageError("no such file"), 2, "no such file", id="wrong usage"),
        pytest.param(UnreachableError("gone"), 3, "gone", id="unreachable"),
        pytest.param(Unreachable("cannot reach x"), 3, "cannot reach x", id="the API server is away"),
        pytest.param(StoreUnreachable("no Redis"), 3, "no Redis", id="the store is away"),
        pytest.param(BadStoreUrl("no URL"), 2, "no URL", id="a URL that is none is wrong input"),
        pytest.param(InvalidKubeconfig("no file y"), 2, "no file y", id="a broken kubeconfig is wrong input"),
        pytest.param(
            ExceptionGroup("tasks", [ExceptionGroup("inner", [Unreachable("cannot reach z")])]),
            3,
            "cannot reach z",
            id="the error of a task counts as the command's",
        ),
        pytest.param(NotHoldingError("two\n lines"), 1, "two lines", id="a message is one line"),
        pytest.param(KeyboardInterrupt(), 130, "", id="interrupted"),
        pytest.param(BrokenPipeError(), 0, "", id="the reader of stdout has seen enough"),
    ],
)
def test_how_a_command_ends(
    outcome: BaseException | int,
    want_code: int,
    want_error: str,
    install: Callable[[BaseException | int], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(outcome)
    monkeypatch.setattr("admission.cli.__main__._discard_stdout", lambda: None)

    assert main(["probe"]) == want_code

    assert capsys.readouterr().err == (f"berth probe: {want_error}\n" if want_error else "")


def test_an_unforeseen_error_is_one_sentence_and_says_how_to_see_more(
    install: Callable[[BaseException | int], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    install(ZeroDivisionError("division by zero"))
    monkeypatch.delenv("BERTH_TRACEBACK", raising=False)

    assert main(["probe"]) == 1

    sentence = "berth probe: ZeroDivisionError: division by zero (this is a fault in Berth; "
    assert capsys.readouterr().err == sentence + "BERTH_TRACEBACK=1 shows where)\n"


@pytest.mark.parametrize(
    ("arguments", "want_words"),
    [
        pytest.param(
            ["sing"], ["invalid choice: 'sing'", "demo", "see berth --help"], id="an unknown command"
        ),
        pytest.param(["crds", "-o", "xml"], ["xml", "see berth crds --help"], id="an unknown format"),
        pytest.param(["crds", "clusterqeue"], ["did you mean clusterqueue?"], id="an unknown kind"),
        pytest.param(["crds", "--colour"], ["--colour"], id="an unknown flag"),
        pytest.param(
            ["usage", "--by", "team"], ["(choose from 'queue', 'namespace', 'user')"], id="an unknown choice"
        ),
        pytest.param(["get"], ["queues|workloads"], id="a missing argument"),
        pytest.param(["explain"], ["name a Workload or its Job, or give"], id="nothing to explain"),
        pytest.param(["explain", "w", "-f", "."], ["w and -f exclude each other"], id="both to explain"),
        pytest.param(
            ["get", "pods"],
            ["'pods'", "queues, workloads, policies, reservations and estimates"],
            id="a kind that get does not know",
        ),
        pytest.param(
            ["get", "queues", "--kubeconfig", "/nowhere/k"], ["/nowhere/k"], id="a missing kubeconfig"
        ),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_code_2(
    arguments: list[str], want_words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2

    sentence = capsys.readouterr().err
    assert sentence.count("\n") == 1
    assert [word for word in want_words if word not in sentence] == []


def test_a_port_that_is_taken_is_exit_code_2(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def taken(*_: object, **__: object) -> None:
        raise ListenError("cannot listen on port 8090: give another one")

    monkeypatch.setattr("admission.cli.commands.controller.run_controller", taken)
    monkeypatch.setattr("admission.cli.commands.controller.configure", lambda **_: None)

    assert main(["controller"]) == 2
    assert "cannot listen on port 8090" in capsys.readouterr().err


def test_a_server_that_is_not_there_is_exit_code_3(
    capsys: pytest.CaptureFixture[str], unreachable_kubeconfig: str
) -> None:
    assert main(["get", "workloads", "--kubeconfig", unreachable_kubeconfig]) == 3

    assert "cannot reach the API server http://127.0.0.1:" in capsys.readouterr().err


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2

    assert "berth COMMAND --help" in capsys.readouterr().out


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_explains_itself_with_examples(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--help"]) == 0

    _, _, examples = capsys.readouterr().out.partition("\nexamples:\n")
    assert f"berth {command}" in examples


def test_help_loads_no_library() -> None:
    script = (
        "import sys; from admission.cli.__main__ import main; main(['--help']);"
        "heavy = {'aiohttp', 'pydantic', 'rich', 'redis', 'yaml', 'msgspec'} & set(sys.modules);"
        "sys.exit(', '.join(sorted(heavy)) or 0)"
    )

    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert (run.returncode, run.stderr) == (0, "")


def test_a_closed_pipe_is_no_error() -> None:
    script = "import sys; from admission.cli.__main__ import main; sys.exit(main(['crds']))"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        assert command.stdout.readline() == "---\n"
        command.stdout.close()

        assert (command.stderr.read(), command.wait(timeout=60)) == ("", 0)
