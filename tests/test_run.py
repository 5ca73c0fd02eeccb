"""The command line: every way in which it can be used, and misused."""

import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from mmspec import run
from mmspec.report.png import read_own
from tests.command import CONF, Command, command

__all__ = ["command"]

_ROOT = Path(__file__).parent.parent


def _result(output: Path = Path("outputs")) -> Path:
    (folder,) = output.iterdir()
    return folder


def test_run_leaves_a_whole_result(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    """Picture with metadata, text, trace, contact sheet and configuration; the last lines are their paths."""
    assert command("pipeline=echo", "prompt=cyberpunk rainy street", "seed=7") == 0
    folder = _result()
    assert re.fullmatch(r"\d{8}-\d{6}-cyberpunk-rainy-street-7", folder.name)
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert names == {
        "image.png", "text.txt", "trace.json", "drafts.png",
        "report.html", ".hydra/config.yaml", ".hydra/overrides.yaml"
    }  # fmt: skip
    assert (folder / "text.txt").read_text(encoding="utf-8") == "echo: cyberpunk rainy street\n"
    trace = json.loads((folder / "trace.json").read_text(encoding="utf-8"))
    assert trace["metrics"]["load_s"] > 0
    assert trace["timeline"][0]["event"] == "loaded"
    with Image.open(folder / "image.png") as image:
        assert image.size == (16, 12)
        assert read_own(image)["seed"] == 7
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("mmspec ")
    assert "pruned 1: red car: looks like blue car (0.10)" in out
    assert out[-1] == str(folder.absolute() / "trace.json")


_PROMPTS = [
    "a=b, c = d",
    "it's \"quoted\" and 'quoted'",
    "{braces} [brackets] (parentheses)",
    "one\ntwo",
    "a robot 🤖 under an umbrella",
    "赛博朋克雨夜街道",
    "costs $5, ${seed} and \\${seed}",
    "back\\slash \\ and \\' at the end\\",
    "1,2,3",
    "1.50",
    "null",
    "true",
    "#hash ~tilde +plus @at :colon %percent",
    "  spaces around  ",
    "prompt=prompt=",
]


@pytest.mark.parametrize("prompt", _PROMPTS)
def test_prompt_is_taken_as_it_stands(command: Command, prompt: str) -> None:
    """No character of a prompt means anything to the command line."""
    assert command("pipeline=echo", "quiet=true", f"prompt={prompt}") == 0
    trace = json.loads((_result() / "trace.json").read_text(encoding="utf-8"))
    assert trace["request"]["prompt"] == prompt


@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1))
def test_any_prompt_survives_the_configuration(prompt: str) -> None:
    """What `literal` writes is read back as it was, whatever it is."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    override = OverridesParser.create().parse_override(run.literal(f"prompt={prompt}"))
    assert not override.is_sweep_override()
    assert OmegaConf.create({"prompt": override.value(), "seed": 1}).prompt == prompt
    # A sweep over another key writes this one anew and parses it once more.
    again = OverridesParser.create().parse_override(f"prompt={override.get_value_element_as_str()}")
    assert again.value() == override.value()


def test_given_text_and_picture_are_taken_letter_by_letter(command: Command) -> None:
    """Commas, quotes and dollars in `text=` and `image=` reach the request; they stand in for a prompt."""
    text, image = 'He said: "$5, {each}"', "a, b=${c}.png"
    assert command("pipeline=echo", f"text={text}", f"image={image}") == 0
    folder = _result()
    request = json.loads((folder / "trace.json").read_text())["request"]
    assert (request["text"], request["image"], request["prompt"]) == (text, image, "")
    assert "he-said" in folder.name


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["prompt="], 1, "prompt is empty"),
        (["prompt=   "], 1, "prompt is empty"),
        (["prompt=x", "n=0"], 1, "n=0 is too small"),
        (["promt=x"], 2, "unknown key promt: did you mean prompt"),
        (["prompt=x", "+sed=3"], 2, "unknown key sed: did you mean seed"),
        (["prompt=x", "seed=abc"], 2, "seed=abc is no int"),
        (["prompt=x", "quiet=7"], 2, "quiet=7 is no bool"),
        (["prompt=x", "pipeline=ech"], 2, "group pipeline has no option 'ech': did you mean echo?"),
        (["prompt=x", "policy=laxest"], 2, "group policy has no option 'laxest'"),
        (
            ["prompt=x", "pipeline.num_branche=3"],
            2,
            "unknown key pipeline.num_branche: did you mean pipeline.num_branches",
        ),
        (["prompt=x", "+pipeline.num_branch=3"], 2, "unknown key pipeline.num_branch: did you mean num_branches"),
        (["prompt=x", "pipeline.num_branches=many"], 2, "pipeline.num_branches=many is no int"),
        (["prompt=x", "pipeline.voice.word=7"], 2, "pipeline.voice.word=7 is no str"),
        (["prompt=x", "~pipeline.ending"], 2, "pipeline.ending is missing"),
        (["prompt=x", "pipeline._target_=tests.echo.Ech"], 2, "pipeline._target_=tests.echo.Ech cannot be imported"),
        (["prompt=x", "pipeline._target_=tests.echo.Voice"], 2, "unknown key pipeline.voice"),
        (["prompt=x", "seed=1,2"], 2, "seed got several values: add -m"),
        (["cyberpunk street"], 2, "cannot read 'cyberpunk street': expected key=value"),
        (["prompt=x", "output=(("], 2, "cannot read 'output=(('"),
        (["--prompt=x"], 2, "--prompt is no option: write prompt=..., without dashes"),
        (["prompt=x", "seed=${nothing}"], 2, "the configuration does not resolve"),
        (["prompt=\udcff"], 2, "prompt is not valid UTF-8"),
        (["prompt=x", "pipeline.ending=model_error"], 1, "the voice cracked"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    command: Command, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    """One line on standard error, an exit code, and no result."""
    chosen = [] if any(argument.startswith("pipeline=") for argument in arguments) else ["pipeline=echo"]
    assert command(*chosen, *arguments) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not Path("outputs").exists() or not list(Path("outputs").iterdir())


def test_bug_is_no_one_liner(command: Command) -> None:
    """What nobody foresaw keeps its traceback, and leaves no result."""
    with pytest.raises(RuntimeError, match="a bug"):
        command("pipeline=echo", "prompt=x", "pipeline.ending=bug")
    assert not list(Path("outputs").iterdir())


def test_unwritable_output_fails_before_any_work(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    """A file where the folder should be: one line, at once."""
    Path("taken").write_text("", encoding="utf-8")
    assert command("pipeline=echo", "prompt=x", "output=taken/deeper") == 1
    captured = capsys.readouterr()
    assert "cannot write the result to" in captured.err
    assert captured.err.count("\n") == 1
    assert "loaded" not in captured.out


def test_contradiction_can_fail_the_run(command: Command) -> None:
    """`fail_on_unverified` turns a contradicted result into an exit code; the result is there all the same."""
    assert command("pipeline=echo", "prompt=x", "pipeline.ending=contradicted", "output=a") == 0
    assert (
        command("pipeline=echo", "prompt=x", "pipeline.ending=contradicted", "output=b", "fail_on_unverified=true") == 3
    )
    assert (_result(Path("b")) / "image.png").is_file()


def test_partial_result_is_kept_and_said(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    """A pipeline that saves what it has when interrupted: whole files, marked, and the exit code of an interruption."""
    assert command("pipeline=echo", "prompt=x", "pipeline.ending=partial") == 130
    assert json.loads((_result() / "trace.json").read_text(encoding="utf-8"))["partial"] is True
    assert capsys.readouterr().err.count("\n") == 1


def test_quiet_prints_the_path_alone(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    """For scripts: standard output is the result folder."""
    assert command("pipeline=echo", "prompt=x", "quiet=true") == 0
    captured = capsys.readouterr()
    assert captured.out == f"{_result().absolute()}\n"
    assert captured.err == ""


def test_sweep_runs_once_for_each_value_but_never_splits_a_prompt(command: Command) -> None:
    """`-m` sweeps over a knob; the commas of a prompt are its own."""
    assert command("-m", "pipeline=echo", "prompt=a, b", "seed=1,2", "quiet=true") == 0
    folders = sorted(path for path in _result().iterdir() if path.is_dir())
    assert [folder.name.rpartition("-")[2] for folder in folders] == ["1", "2"]
    for folder in folders:
        assert (folder / "text.txt").read_text(encoding="utf-8") == "echo: a, b\n"


def test_one_failing_job_of_a_sweep_does_not_stop_the_others(command: Command) -> None:
    """The exit code is the worst one."""
    assert command("-m", "pipeline=echo", "prompt=a", "pipeline.ending=model_error,good", "quiet=true") == 1
    assert len([path for path in _result().iterdir() if path.is_dir()]) == 1


def test_job_writes_into_a_folder_of_its_own(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    """A job needs no prompt; what it wrote stays, also when it is interrupted."""
    assert command("pipeline=chore", "output=a") == 0
    assert (_result(Path("a")) / "results.json").is_file()
    assert (_result(Path("a")) / ".hydra" / "config.yaml").is_file()
    assert command("pipeline=chore", "output=b", "pipeline.ending=interrupted") == 130
    assert str(_result(Path("b"))) in capsys.readouterr().err


def test_help_and_configuration_need_no_model(command: Command, capsys: pytest.CaptureFixture[str]) -> None:
    """Hydra's own switches work."""
    with pytest.raises(SystemExit) as left:
        command("--help")
    assert not left.value.code
    assert command("--cfg", "job") == 0
    assert command("--info", "searchpath") == 0
    out = capsys.readouterr().out
    assert "One prompt in, one coherent text and picture out." in out
    assert "max_tokens: 60" in out


def _start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "mmspec.run", "--config-dir", str(CONF), *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(_ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts background jobs deaf to Ctrl-C, and children inherit that: the program must hear it here.
        preexec_fn=functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )


def test_interruption_ends_in_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    """Ctrl-C in the middle of a run."""
    with _start(tmp_path, "pipeline=echo", "prompt=x", "pipeline.ending=interrupted") as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("round 0"):
                break
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == "interrupted: nothing was written\n"
    assert list((tmp_path / "outputs").iterdir()) == []


def test_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    """`... | head -1` ends quietly."""
    with _start(tmp_path, "pipeline=echo", "prompt=x") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert process.returncode == 1


def test_file_that_cannot_grow_leaves_nothing(tmp_path: Path) -> None:
    """A disk that fills up while the result is written (here: a limit on file size) is one line and no result."""
    script = (
        "import resource, signal, sys\n"
        "from mmspec import run\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        "sys.exit(run.main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "--config-dir", str(CONF), "pipeline=echo", "prompt=x", "quiet=true"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(_ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert re.fullmatch(r"error: cannot write the result to .*/outputs \(File too large\): make room .*\n", done.stderr)
    assert list((tmp_path / "outputs").iterdir()) == []
