"""`tupe config` prints every setting, or what differs."""

from dataclasses import fields
from types import SimpleNamespace

import pytest

from tupe_jax import cli
from tupe_jax.config.loading import known_configs, load_config
from tupe_jax.config.schema import Config


@pytest.fixture
def run(capsys):
    def run(*arguments):
        code = cli.main(["config", *arguments])
        printed = capsys.readouterr()
        return SimpleNamespace(code=code, lines=printed.out.splitlines(), error=printed.err)

    return run


def value_in(config, name):
    for part in name.split("."):
        config = config[part]
    return config


@pytest.mark.parametrize(
    "spec", ["tupe_r", "tupe_r:modern", "quickstart", "finetune:quick", "glue"]
)
def test_every_setting_is_a_line_with_its_value(run, spec):
    lines = [line.split(" = ") for line in run(spec).lines if line]
    config = load_config(spec)
    assert all(eval(value) == value_in(config, name) for name, value in lines)
    assert len(lines) == len(list(leaves(config)))


def leaves(config):
    for value in config.values():
        yield from leaves(value) if hasattr(value, "items") else (value,)


def test_sections_are_in_the_order_of_the_schema(run):
    sections = "\n".join(run("tupe_r").lines).split("\n\n")
    names = [section.partition(" ")[0].partition(".")[0] for section in sections]
    expected = [field.name for field in fields(Config)]
    expected.insert(1, "position")
    assert names == expected
    for section, name in zip(sections[:-1], names, strict=False):
        assert all(line.startswith(f"{name}.") for line in section.splitlines())


def test_overrides_are_applied(run):
    lines = run("tupe_r:tiny", "--config.train.steps=5", "--config.data.task=text:a.txt").lines
    assert {"train.steps = 5", 'data.task = "text:a.txt"'} <= set(lines)


@pytest.mark.parametrize("name", [name for name in known_configs() if "ablations/" in name])
def test_a_study_has_its_variants_and_its_pre_training(run, name):
    lines, study = run(name).lines, load_config(name)
    variants = [line for line in lines if line.startswith('variants["')]
    assert len(variants) == len(study.variants)
    assert lines.index("") == len(variants)
    assert f"pretrain.train.steps = {study.pretrain.train.steps}" in lines
    without_tasks = name in ("ablations/gain", "ablations/blocks")
    tasks = "()" if without_tasks else '("builtin_cola", "builtin_nli")'
    assert f"downstream.tasks = {tasks}" in lines


def test_only_what_differs_is_shown_with_both_values(run):
    done = run("tupe_r", "--diff", "bert_r", "--config.train.steps=7")
    assert [line.split() for line in done.lines] == [
        ["tupe_r", "+", "overrides", "bert_r"],
        ["position.absolute", '"untied"', '"added"'],
        ["position.untie_cls", "True", "False"],
        ["train.steps", "7", "1000000"],
    ]
    assert done.code == 0


def test_what_one_study_lacks_is_a_dash(run):
    lines = run("ablations/paper_table", "--diff=ablations/attenuated_grid").lines
    table = {line.split()[0]: line.split()[1:] for line in lines[1:]}
    assert table['variants["TUPE-R"].encoding'] == ['"tupe_r"', "-"]
    assert table['variants["w0.5-x4"].encoding'][0] == "-"
    assert table["seeds"] == ["(0,", "1,", "2)", "(2,)"]


def test_equal_configs(run):
    done = run("tupe_r", "--diff=tupe_r:paper")
    assert (done.code, done.lines) == (0, ["tupe_r and tupe_r:paper have the same settings"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["tupe_rr"], "'tupe_r'"),
        (["tupe_r:tinny"], "'tiny'"),
        (["tupe_r", "--diff=tupe_aa"], "'tupe_a'"),
        (["tupe_r", "--diff=glue"], "--diff=glue"),
        (["tupe_r", "--config.train.stepz=5"], "'stepz'"),
        (["glue", "--config.tasks=colla"], "'cola'"),
        (["finetune", "--config.batch_size=0"], "finetune.batch_size=0"),
    ],
)
def test_a_mistake_is_one_line(run, arguments, words):
    done = run(*arguments)
    assert done.code == cli.USER_ERROR_EXIT_CODE
    assert words in done.error
    assert done.error.count("\n") == 1


def test_a_file_of_your_own_starts_from_a_recipe(run, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from tupe_jax.config.loading import recipe\n\n\n"
        "def get_config():\n"
        "    config = recipe('tiny')\n"
        "    config.train.steps = 123\n"
        "    return config\n"
    )
    assert [line.split() for line in run(str(file), "--diff=bert_a:tiny").lines[1:]] == [
        ["train.steps", "123", "900"]
    ]
