"""Real runs, started and stopped after their first step."""

import json

import pytest

from tests.training import runs
from tests.training.conftest import corpus
from tupe_jax import cli
from tupe_jax.bench import start_speed

__all__ = ["corpus"]


pytestmark = pytest.mark.slow


def test_each_kind_of_start_is_measured(corpus, monkeypatch, capsys):
    monkeypatch.setattr(start_speed, "REPEATS", 1)
    arguments = [*runs.settings(corpus), "--config.train.steps=1000"]
    assert cli.main(["bench", "start", "--config=tupe_r:tiny", "--json", *arguments]) == 0
    cold, warm, resumed = map(json.loads, capsys.readouterr().out.splitlines())
    assert (cold["what"], warm["what"], resumed["what"]) == ("cold", "warm", "resumed")
    assert max(warm["cpu_seconds"], resumed["cpu_seconds"]) < cold["cpu_seconds"]


def test_a_run_that_fails_ends_the_measurement_with_its_reason(corpus, tmp_path):
    with pytest.raises(start_speed.UserError, match="no-such-config"):
        start_speed._start(["--config=no-such-config"], start_speed.Path(tmp_path / "run"))
