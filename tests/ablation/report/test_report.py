"""The report: one self-contained file that shows the settings and all measurements."""

import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from tests.ablation.invented import SIX, collected_of, study_config
from tupe_jax.ablation.config import Variant
from tupe_jax.ablation.report.html import from_markdown
from tupe_jax.ablation.report.plots import (
    COLOURS,
    dots,
    head_matrices,
    loss_curves,
    scale_of,
    variant_styles,
)
from tupe_jax.ablation.report.report import html_report
from tupe_jax.lab.length_extrapolation import LengthScore

COMMAND = "tupe ablate --config=ablations/paper_table --workdir='runs/<a> & b'"
EMPTY = {"meta", "path", "use", "image", "rect", "line"}


class Page(HTMLParser):
    """What a browser would find."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.ids, self.links, self.words, self.open = Counter(), [], [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags[tag] += 1
        values = dict(attributes)
        self.ids += [values["id"]] if "id" in values else []
        self.links += [values[a] for a in ("href", "src", "xlink:href") if a in values]
        self.links += [
            f"#{name}" for v in values.values() for name in re.findall(r"url\(#([^)]+)", v or "")
        ]
        if tag not in EMPTY:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in EMPTY:
            self.open.pop()

    def handle_endtag(self, tag):
        if tag not in EMPTY:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self):
        return " ".join(self.words)


SECTIONS = {
    "run", "table", "loss", "convergence", "heads", "structure", "probes", "pairs",
}  # fmt: skip


def sections_of(page):
    return SECTIONS & set(page.ids)


@pytest.fixture(scope="module")
def text():
    config = study_config(SIX[:3], seeds=(0, 1), length=8)
    return html_report(collected_of(config), COMMAND)


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


@pytest.fixture(scope="module")
def unfinished():
    config = study_config(
        SIX[:3], learning_rates=(1e-3, 2e-3), tasks=(), probed=False, pairs=0, length=8
    )
    collected = collected_of(config, missing=4, diverged=[("BERT-R", 0)])
    return Page(html_report(collected, COMMAND))


def test_the_page_needs_nothing_from_outside(page):
    assert not {"script", "link", "iframe", "img"} & set(page.tags)
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in page.links)


def test_every_tag_is_closed_and_every_link_leads_somewhere(page):
    assert page.open == []
    assert max(Counter(page.ids).values()) == 1
    inside = {link[1:] for link in page.links if link.startswith("#")}
    assert inside <= set(page.ids)


def test_a_complete_study_has_all_sections(page):
    assert sections_of(page) == SECTIONS
    assert "Unfinished" not in page.text
    assert "Diverged" not in page.text


def test_probes_name_their_pairs_and_which_answer_is_right_and_show_accuracy(page):
    assert page.text.count("of the built-in grammar") == 3  # table, probes, minimal pairs
    assert "In Shuffle-SR another answer is right" in page.text
    at = page.words.index("Accuracy after the change, %, the mean over seeds:")
    row = page.words.index("BERT-A", at)
    accuracies = [float(word) for word in page.words[row + 1 : row + 3]]
    assert accuracies[0] > 60 > accuracies[1]  # Random, Shuffle-SR


def test_the_page_names_what_was_run(page):
    assert COMMAND in page.text
    assert "900 steps of 64 sequences of 64 tokens" in page.text
    for variant in ("BERT-A", "BERT-R", "BERT-A^d"):
        assert page.words.count(variant) > 3


def test_what_users_write_is_escaped(text):
    assert "<a>" not in text
    config = study_config(SIX[:1], seeds=(0,), tasks=(), probed=False, pairs=0, length=8)
    data = replace(config.pretrain.data, task="text:<script>.txt")
    config = replace(config, pretrain=replace(config.pretrain, data=data))
    assert "script" not in Page(html_report(collected_of(config), "tupe")).tags


def test_the_same_study_gives_the_same_page():
    config = study_config(SIX[:2], seeds=(0,), tasks=(), probed=False, pairs=0, length=8)
    one, other = (html_report(collected_of(config), COMMAND) for _ in range(2))
    assert one == other


def test_colours_are_left_to_the_page_for_the_dark(text):
    drawn = "".join(re.findall(r"<svg.*?</svg>", text, re.DOTALL)).lower()
    assert "var(--c0)" in drawn
    assert "currentcolor" in drawn
    assert not [colour for colour in COLOURS if colour.lower() in drawn]


def test_what_was_not_measured_is_left_out(unfinished):
    assert sections_of(unfinished) == {"run", "table", "loss", "convergence", "heads"}


def test_an_unfinished_study_lists_missing_and_diverged_runs(unfinished):
    assert "Unfinished runs: 4." in unfinished.text
    assert "BERT-A^d, seed 2" in unfinished.words
    assert "BERT-R, seed 0, learning rate 0.001" in unfinished.words


def test_a_variant_with_a_diverged_seed_has_no_speed_up(unfinished):
    at = unfinished.words.index("1 of 2")
    assert "not all" in unfinished.words[at - 5 : at]


def test_a_study_without_finished_runs_has_a_page():
    config = study_config(SIX[:2], length=8)
    collected = collected_of(config, missing=6)
    page = Page(html_report(collected, COMMAND))
    assert sections_of(page) == {"run", "table"}
    assert "Unfinished runs: 6" in page.text


def test_steps_to_a_goal_that_is_out_of_reach_are_no_number():
    config = study_config(SIX[:2], seeds=(0, 1), tasks=(), probed=False, pairs=0, length=8)
    collected = collected_of(config)
    runs = {
        name: {seed: replace(r, validation=curve) for seed, r in records.items()}
        for (name, records), curve in zip(
            collected.runs.items(),
            [((180, 4.0), (360, 3.0)), ((180, 4.0), (360, 3.5))],
            strict=True,
        )
    }
    page = Page(html_report(replace(collected, runs=runs), COMMAND))
    at = page.words.index("0 of 2")
    assert page.words[at - 2 : at] == ["BERT-R", "never"]


def test_without_the_first_variant_there_is_no_comparison():
    collected = collected_of(study_config(SIX[:3], seeds=(0, 1)))
    first = collected.config.variants[0].name
    runs = {name: {} if name == first else records for name, records in collected.runs.items()}
    page = Page(html_report(replace(collected, runs=runs), COMMAND))
    assert "loss" in page.ids
    assert "convergence" not in page.ids


def test_variants_have_different_styles():
    styles = variant_styles([f"v{i}" for i in range(21)]).values()
    assert len({(style.colour, style.dash) for style in styles}) == 21
    assert len({(style.colour, style.marker, style.hollow) for style in styles}) == 21


def test_the_shade_reaches_from_the_lowest_to_the_highest_seed():
    def shade(*ends):
        curves = {"a": [[(0, 8.0), (10, end)] for end in ends]}
        svg = loss_curves(curves, variant_styles(["a"]), "any")
        (used,) = re.findall(r'href="#([^"]+)"[^>]*fill-opacity: 0.2"', svg)
        return re.search(rf'<path id="{used}" d="([^"]+)"', svg)[1]

    assert shade(2.0, 5.0) == shade(2.0, 5.0, 4.0) != shade(2.0, 4.0, 4.0)


def test_bars_are_drawn_where_there_are_intervals():
    def drawn(bars):
        svg = dots({"a": [1.0, 2.0], "b": [3.0]}, variant_styles("ab"), "any", "x", bars=bars)
        return svg.count("stroke-opacity: 0.7")

    assert drawn(None) == 0
    assert drawn({"a": (0.5, 2.5), "b": (2.5, 3.5)}) == 2


def test_long_names_are_cut_in_plots_not_in_the_middle_of_others():
    name = "a-variant-with-a-very-long-name"
    svg = dots({name: [1.0], "b": [2.0]}, variant_styles([name, "b"]), "any", "x")
    assert name not in svg
    assert "a-variant-with-a-very…" in svg


@pytest.mark.parametrize("length", [5, 64, 150])
def test_heads_are_drawn_at_most_64_pixels_wide(length):
    eye = np.broadcast_to(np.eye(length, dtype=np.float32), (2, 3, length, length))
    svg = head_matrices(eye, scale_of([eye]), "any", "a <head>")
    (width, height) = re.search(
        r'width="(\d+)" height="(\d+)"', svg[svg.index("<image") :]
    ).groups()
    tile = min(length, 64)
    gap = max(1, tile // 12)
    assert (int(width), int(height)) == (3 * tile + 2 * gap, 2 * tile + gap)
    assert 'aria-label="a &lt;head&gt;"' in svg


def test_markdown_becomes_tables_and_paragraphs():
    found = from_markdown("| a | b |\n|---|---:|\n| x<y | **2** |\n\nOne\nline.\n").text
    assert "<th>a</th><th>b</th>" in found
    assert "<td>x&lt;y</td><td><b>2</b></td>" in found
    assert found.endswith("<p>One line.</p>")


@pytest.mark.slow
def test_matplotlib_is_imported_only_to_draw():
    program = "import tupe_jax.ablation.report.plots, sys; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_losses_of_two_objectives_are_in_different_sections_and_plots():
    electra = Variant("RTD", "bert_a", {"objective.name": "replaced_token"})
    config = study_config((*SIX[:2], electra), seeds=(0,), length=8)
    text = html_report(collected_of(config), COMMAND)
    page = Page(text)
    assert {"loss", "loss1"} <= set(page.ids)
    assert len(page.ids) == len(set(page.ids))
    of_masked_lm, of_electra = (
        text.split(f'id="{name}"')[1].split("</section>")[0] for name in ("loss", "loss1")
    )
    assert "BERT-R" in of_masked_lm
    assert "RTD" not in of_masked_lm
    assert "RTD" in of_electra
    assert "BERT-R" not in of_electra
    convergence = text.split('id="convergence"')[1].split("</section>")[0]
    assert "RTD" not in convergence


def test_longer_inputs_have_a_plot_and_name_the_best_rule():
    config = study_config(SIX[:2], seeds=(0, 1), tasks=(), probed=False, pairs=0, length=8)
    collected = collected_of(config)

    def score(length, rule, loss):
        measures = {"locality": 1 / length, "symmetry": 1.0, "mirror_symmetry": 1.0}
        return LengthScore(length, rule, loss, measures)

    lengths = (
        score(64, "as_is", 2.0), score(128, "interpolated", 3.25), score(128, "last_row", 2.75),
    )  # fmt: skip
    runs = {
        name: {seed: replace(r, lengths=lengths) for seed, r in records.items()}
        for name, records in collected.runs.items()
    }
    text = html_report(replace(collected, runs=runs), COMMAND)
    section = text.split('<section id="lengths">')[1].split("</section>")[0]
    assert section.count("<svg") == 2 + len(runs)  # and a swatch for each variant
    assert "<td>2.750 (last row)</td>" in section
    assert "<td>interpolated</td><td>3.250</td>" in section
    assert "<td>2.000</td>" in section
    assert 'id="lengths"' not in html_report(collected, COMMAND)
