"""A run resumes with its own settings; settings that were added later have their defaults."""

from dataclasses import asdict

import pytest

from tupe_jax.config.schema import Config, ModelConfig, OptimizerConfig
from tupe_jax.finetune.config import FinetuneConfig
from tupe_jax.run.resume_checks import check_unchanged
from tupe_jax.utils.errors import UserError


def test_a_setting_that_came_later_was_at_its_default():
    saved = asdict(Config())
    del saved["model"]["segments"], saved["model"]["position"]["decay_left"]
    check_unchanged(saved, asdict(Config()))
    with pytest.raises(UserError, match=r"\bmodel\.segments .*0.*2"):
        check_unchanged(saved, asdict(Config(model=ModelConfig(segments=2))))


def test_a_setting_that_is_gone_is_named():
    saved = asdict(Config())
    saved["model"]["rainbow"] = True
    with pytest.raises(UserError, match=r"model\.rainbow .*True.*None"):
        check_unchanged(saved, asdict(Config()))


def test_a_setting_that_came_later_was_at_its_default_in_a_study_too():
    saved = {"pretrain": asdict(Config())}
    del saved["pretrain"]["model"]["segments"]
    check_unchanged(saved, {"pretrain": asdict(Config())})
    changed = {"pretrain": asdict(Config(model=ModelConfig(segments=2)))}
    with pytest.raises(UserError, match=r"pretrain\.model\.segments .*0.*2"):
        check_unchanged(saved, changed)


@pytest.mark.parametrize("sections", ["finetune", "config.finetune", "downstream.finetune"])
def test_a_setting_that_came_later_was_at_its_default_in_fine_tuning_too(sections):
    """As `tupe finetune`, `tupe glue` and `tupe ablate` note their configs."""

    def noted(warmup_from_zero):
        optimizer = OptimizerConfig(warmup_from_zero=warmup_from_zero)
        config = asdict(FinetuneConfig(optimizer=optimizer))
        for section in reversed(sections.split(".")):
            config = {section: config}
        return config

    saved = noted(False)
    innermost = saved
    for section in sections.split("."):
        innermost = innermost[section]
    del innermost["optimizer"]["warmup_from_zero"]
    check_unchanged(saved, noted(False))
    with pytest.raises(UserError, match=r"optimizer\.warmup_from_zero .*False.*True"):
        check_unchanged(saved, noted(True))


def test_a_top_level_setting_that_came_later_was_at_its_default():
    saved = asdict(Config())
    del saved["seed"]
    check_unchanged(saved, asdict(Config()))
    with pytest.raises(UserError, match=r"seed .*0.*3"):
        check_unchanged(saved, asdict(Config(seed=3)))
