"""A text that a fine-tuning sees repeatedly is among the most exposed ones.

1,000 ordinary texts, in which the next word is mostly the one after the last, and one text of random
words that is in the data several times. The unit is the text: all its copies leave at once. The
control of each seed is an ordinary text of the same fine-tuning without the planted one. Exposures
are those of the one run, noise included: the loss of a text is about N(μ²/2, μ²), so that a text
of few copies is missed in some runs.
"""

import numpy as np
import pytest
import torch

pytest.importorskip("transformers")
pytest.importorskip("peft")

import expost.torch
from dpsgd import language
from dpsgd.tracked import HOOKS
from evidence import record
from expost.torch.transformers import row_loss

pytestmark = [
    pytest.mark.filterwarnings(HOOKS),
    # Of transformers and peft themselves.
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

TEXTS, COPIES, EPOCHS = 1000, (1, 8, 16, 32), 2
SETTINGS = {"batch_size": 50, "sigma": 1.0, "clip": 0.3, "rate": 1.0}


def exposures(seed, copies):
    """The exposure of each text, the planted one last, of one fine-tuning; and its ε for a row."""
    texts = language.ordinary(TEXTS, 1000 + seed)
    names = [f"text {row}" for row in range(TEXTS)] + ["planted"] * copies
    if copies:
        texts = torch.cat([texts, language.strange(1, 2000 + seed).repeat(copies, 1)])
    model, optimizer, loader = language.private(
        language.gpt2(seed), language.Texts(texts), **SETTINGS
    )
    tracker = expost.torch.track(optimizer, loader, row_count="public", persons=names)
    for _ in range(EPOCHS):
        for batch in loader:
            optimizer.zero_grad()
            row_loss(model(input_ids=batch["input_ids"]), batch["labels"]).backward()
            optimizer.step()
    return tracker.profile().exposure, tracker.accountant_epsilon(1e-5)


def rank(exposure, text):
    """1 is the most exposed."""
    return 1 + int(np.sum(exposure > exposure[text]))


def test_a_text_that_is_seen_repeatedly_is_among_the_most_exposed():
    exposure, _ = exposures(0, 32)
    assert len(exposure) == TEXTS + 1
    assert rank(exposure, TEXTS) <= len(exposure) // 100


@pytest.mark.long
def test_record_planted_texts():
    ranks: dict[str, list[int]] = {f"planted {copies} times": [] for copies in COPIES}
    ranks["control"] = []
    epsilon = []
    for seed in range(20):
        for copies in COPIES:
            exposure, spent = exposures(seed, copies)
            ranks[f"planted {copies} times"].append(rank(exposure, TEXTS))
            epsilon.append(spent)
        ordinary, _ = exposures(seed, 0)
        chosen = int(np.random.default_rng(seed).integers(TEXTS))
        ranks["control"].append(rank(ordinary, chosen))
    top = TEXTS // 100
    inside = {name: sum(at <= top for at in ranked) for name, ranked in ranks.items()}
    record(
        "lora-planted",
        command="pytest -m long tests/with_torch/test_lora_planted.py",
        seed=0,
        figures={
            "seeds": 20,
            "texts": TEXTS,
            "settings": {**SETTINGS, "epochs": EPOCHS, "model": "GPT-2 of 1 layer, LoRA of rank 2"},
            "epsilon_of_a_row": max(epsilon),
            "top": top,
            "in_the_top_hundredth": inside,
            "ranks": ranks,
        },
    )
    assert inside["planted 16 times"] >= 18
    assert inside["planted 32 times"] >= 19
    # A control is there with probability 1/100: three or more of twenty with 1e-3.
    assert inside["control"] <= 2
