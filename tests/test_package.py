"""What a newcomer meets first: the import, the command, the README."""

import errno
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import tupe_jax
from tupe_jax import cli
from tupe_jax.config.loading import load_config
from tupe_jax.data.pretraining.cleaning import CLEANING_STEPS
from tupe_jax.utils.errors import (
    RETRY_EXIT_CODE,
    RetryError,
    UserError,
    reading_failed,
    writing_failed,
)

ROOT = Path(__file__).parent.parent


def python(script):
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_import_is_light():
    assert (
        python("import sys, tupe_jax; print({'jax', 'tensorflow'} & set(sys.modules))") == "set()"
    )


def test_the_model_needs_no_tensorflow():
    script = "import sys, tupe_jax; tupe_jax.MaskedLM; print('tensorflow' in sys.modules)"
    assert python(script) == "False"


def test_help_lists_every_command_and_needs_no_jax():
    listed = python(
        "import sys; from tupe_jax import cli; cli.main(['--help']); "
        "assert 'jax' not in sys.modules"
    )
    for command in cli.COMMANDS:
        assert command.name in listed
        assert command.summary in listed


def test_every_command_explains_itself_with_an_example(capsys):
    for command in cli.COMMANDS:
        with pytest.raises(SystemExit, match=r"^0$"):
            cli.main([command.name, "--help"])
        assert f"tupe {command.name} " in capsys.readouterr().out.split("\n\n", 1)[1]


@pytest.mark.parametrize("command", ["prepare", "vocab"])
def test_help_breaks_lines_between_words(command, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    words = re.split(r"[\s,]+", capsys.readouterr().out)
    assert set(CLEANING_STEPS) <= set(words)


def test_help_of_every_command_needs_neither_jax_nor_tensorflow():
    script = """
import contextlib, sys
from tupe_jax import cli
for command in cli.COMMANDS:
    with contextlib.suppress(SystemExit):
        cli.main([command.name, "--help"])
    assert not {"jax", "tensorflow"} & set(sys.modules), command
"""
    python(script)


def test_without_arguments_it_lists_the_commands_by_purpose(capsys):
    assert cli.main([]) == 0
    shown = capsys.readouterr().out
    for group, commands in cli.COMMAND_GROUPS.items():
        (_, after) = shown.split(f"\n{group}:\n")
        lines = after.splitlines()[: len(commands)]
        assert [line.split()[0] for line in lines] == [command.name for command in commands]


def test_the_version_is_printed(capsys):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"tupe_jax {tupe_jax.__version__}\n"


def test_an_unknown_command_is_one_line(capsys):
    assert cli.main(["pretrane"]) == cli.USER_ERROR_EXIT_CODE
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "did you mean 'pretrain'" in error


@pytest.mark.parametrize("command", cli.COMMANDS, ids=lambda command: command.name)
def test_an_unknown_argument_is_one_line(command, capsys):
    with pytest.raises(SystemExit, match=f"^{cli.USER_ERROR_EXIT_CODE}$"):
        cli.main([command.name, "--nonsense=1"])
    error = capsys.readouterr().err
    assert error.startswith(f"tupe {command.name}: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["fill-mask", "m", "a text", "--topk", "5"],
            "arguments: --topk (did you mean '--top_k'?)",
        ),
        (["fill-mask"], "required: checkpoint;"),
        (["pretrain", "--config.seed", "5"], "write --config.seed=VALUE, with an equals sign"),
        (["doctor", "--config.seed=5"], "this command takes no config"),
    ],
)
def test_wrong_arguments_are_named(words, told, capsys):
    with pytest.raises(SystemExit, match=f"^{cli.USER_ERROR_EXIT_CODE}$"):
        cli.main(words)
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1


def test_options_accept_hyphens_and_underscores():
    commands = {command.name: command for command in cli.COMMANDS}
    words = ["m", "--top-k=3", "--", "--top-k=4", "a_b-c"]
    asked = cli.parse(commands["fill-mask"], words)
    assert (asked.top_k, asked.text) == (3, ["--top-k=4", "a_b-c"])
    asked = cli.parse(commands["bench"], ["reader", "--batch_size", "3", "--data=a_b-c"])
    assert (asked.batch_size, str(asked.data)) == (3, "a_b-c")


@pytest.mark.parametrize(
    ("stream", "words", "code"),
    [
        ("stderr", ["config", "no_such_config"], cli.USER_ERROR_EXIT_CODE),
        ("stdout", ["config", "tupe_r"], RETRY_EXIT_CODE),
    ],
)
def test_a_full_disk_under_the_log_does_not_change_the_exit_code(stream, words, code):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "tupe_jax", *words]
        done = subprocess.run(command, check=False, **{stream: full})
    assert done.returncode == code


A_THREAD_THAT_NEVER_ENDS = """
import sys, threading
from tupe_jax import cli
cli.EXIT_SECONDS = 0.2
threading.Thread(target=threading.Event().wait).start()
sys.argv[1:] = ["no-such-command"]
cli.entry_point()
"""


def test_a_thread_that_never_ends_does_not_keep_the_process_from_ending():
    with subprocess.Popen([sys.executable, "-c", A_THREAD_THAT_NEVER_ENDS]) as process:
        try:
            assert process.wait(timeout=60) == cli.USER_ERROR_EXIT_CODE
        finally:
            process.kill()


AN_ERROR_THAT_NOBODY_READS = """
import sys, threading, time
from tupe_jax import cli

cli.EXIT_SECONDS = 0.2
# More than a pipe holds.
threading.Thread(target=sys.stderr.write, args=("." * 1_000_000,), daemon=True).start()
time.sleep(0.2)
sys.argv[1:] = ["config", "no-such-config"]
cli.entry_point()
"""


def test_an_error_that_nobody_reads_does_not_keep_the_process_from_ending():
    command = [sys.executable, "-c", AN_ERROR_THAT_NOBODY_READS]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        try:
            assert process.wait(timeout=60) == cli.USER_ERROR_EXIT_CODE
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (UserError("a wrong thing"), cli.USER_ERROR_EXIT_CODE, "a wrong thing"),
        (PermissionError(13, "Permission denied", "/x"), 2, "/x: Permission denied"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (OSError(28, "Full"), RETRY_EXIT_CODE, "cannot write: Full; free disk space"),
    ],
)
def test_user_errors_are_one_line_and_a_traceback_on_request(
    error, code, line, monkeypatch, capsys
):
    def fail(arguments):
        raise error

    monkeypatch.setattr("tupe_jax.commands.pretrain.run", fail)
    assert cli.main(["pretrain"]) == code
    assert capsys.readouterr().err == f"tupe pretrain: {line}\n"
    monkeypatch.setenv("TUPE_TRACEBACK", "1")
    with pytest.raises(type(error)):
        cli.main(["pretrain"])


def test_internal_errors_keep_their_traceback(monkeypatch):
    def fail(arguments):
        raise ZeroDivisionError

    monkeypatch.setattr("tupe_jax.commands.pretrain.run", fail)
    with pytest.raises(ZeroDivisionError):
        cli.main(["pretrain"])


def test_a_broken_pipe_is_one_line():
    script = "from tupe_jax import cli; import sys; sys.exit(cli.main(['completion', 'fish']))"
    pipe = f"{sys.executable} -c {shlex.quote(script)} | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() in ("0", "141")  # 0 if all fitted into the pipe
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (
            "def get_config():\n    return nothing\n",
            r"mine.py:2: NameError: .*'nothing'",
        ),
        ("def get_config(\n", r"mine.py: SyntaxError: .*line 1"),
        ("import not_there\n", r"mine.py:1: ModuleNotFoundError"),
        ("x = 1\n", "mine.py.*get_config"),
        ("def get_config():\n    pass\n", "mine.py: get_config .*NoneType"),
    ],
)
def test_an_error_in_a_config_file_names_its_line(content, words, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(content)
    with pytest.raises(UserError, match=words):
        load_config(str(file))


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (IsADirectoryError(), UserError),
        (NotADirectoryError(), UserError),
        (PermissionError(), UserError),
        (OSError("no space left on device"), RetryError),
    ],
)
def test_a_wrong_path_to_write_to_is_a_user_error(cause, kind):
    assert type(writing_failed("cannot write", cause)) is kind


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (FileNotFoundError(), UserError),
        (IsADirectoryError(), UserError),
        (PermissionError(), UserError),
        (OSError("Forbidden: gs://bucket/file"), UserError),
        (OSError(errno.EIO, "Input/output error"), RetryError),
        (ConnectionResetError(), RetryError),
    ],
)
def test_a_wrong_path_to_read_from_is_a_user_error(cause, kind):
    assert type(reading_failed("cannot read", cause)) is kind


def test_failures_of_the_environment_have_their_own_exit_code(monkeypatch, capsys):
    def fail(arguments):
        raise RetryError("the storage failed")

    monkeypatch.setattr("tupe_jax.commands.pretrain.run", fail)
    assert cli.main(["pretrain"]) == RETRY_EXIT_CODE
    assert capsys.readouterr().err == "tupe pretrain: the storage failed\n"


@pytest.mark.slow
def test_the_code_of_the_documents_runs():
    """Each page's Python blocks, in order, in a namespace of their own.

    What needs a trained model is run by `test_quickstart.py`, which has one.
    """
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    blocks = [re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL) for page in pages]
    runnable = ["\n".join(block for block in of_page if "runs/" not in block) for of_page in blocks]
    assert sum(map(bool, runnable)) == 3
    python("\n".join(f"exec({code!r}, {{}})" for code in runnable))
