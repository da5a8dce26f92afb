"""LoRA fine-tuning of language models: plain loops, a ``Trainer`` with its callback, canaries."""

import copy
import warnings

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader

transformers = pytest.importorskip("transformers")
pytest.importorskip("peft")

import expost.torch  # noqa: E402 (after the check)
from dpsgd import language, page  # noqa: E402 (the same)
from dpsgd.naive import log_normal  # noqa: E402 (the same)
from dpsgd.tracked import HOOKS, quiet, shortened  # noqa: E402 (the same)
from expost.auditing.lower_bounds import LowerBound  # noqa: E402 (the same)
from expost.errors import InvalidInput  # noqa: E402 (the same)
from expost.report import document_of, render_html  # noqa: E402 (the same)
from expost.risk import DPSGD  # noqa: E402 (the same)
from expost.torch.transformers import TrackingCallback, row_loss  # noqa: E402 (the same)

pytestmark = [
    pytest.mark.filterwarnings(HOOKS),
    # Of transformers, peft and accelerate themselves.
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*pin_memory:UserWarning"),
]


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def gradient(model, row, loss, clip):
    """A row's clipped gradient by plain autograd."""
    batch = {name: value[None] for name, value in row.items()}
    value = loss(model(input_ids=batch["input_ids"]), batch["labels"])
    trained = [p for p in model.parameters() if p.requires_grad]
    parts = torch.autograd.grad(value, trained)
    return shortened(torch.cat([part.double().reshape(-1) for part in parts]).numpy(), clip)


class Noted:
    """What a step published, read by a step hook of the test's own."""

    def __init__(self, optimizer, plain, data):
        self.optimizer, self.plain, self.data = optimizer, plain, data
        self.total = np.zeros(len(data))
        account = optimizer.step_hook
        optimizer.attach_step_hook(lambda own: (self.note(), account(own)))
        self.batch = []

    def note(self):
        optimizer = self.optimizer
        trained = [p for p in self.plain.parameters() if p.requires_grad]
        with torch.no_grad():
            for mine, theirs in zip(trained, optimizer.params, strict=True):
                mine.copy_(theirs)
        clip = optimizer.max_grad_norm
        published = np.concatenate([p.grad.double().numpy().ravel() for p in optimizer.params])
        published = published * optimizer.expected_batch_size
        scale = optimizer.noise_multiplier * clip
        g = {row: gradient(self.plain, self.data[row], row_loss, clip) for row in self.batch}
        everything = sum(g.values(), np.zeros_like(published))
        for row in self.batch:
            self.total[row] += log_normal(published, everything, scale)
            self.total[row] -= log_normal(published, everything - g[row], scale)


class Numbered(language.Texts):
    """Texts that remember which of them were read."""

    def __init__(self, texts, lengths=None):
        super().__init__(texts, lengths)
        self.read = []

    def __getitem__(self, row):
        self.read.append(row)
        return super().__getitem__(row)


def made(make, rows=30, *, lengths=None, dtype=torch.float64, **options):
    data = Numbered(language.ordinary(rows, seed=1), lengths)
    model = make(dtype=dtype)
    plain = copy.deepcopy(model)
    model, optimizer, loader = language.private(model, data, batch_size=6, **options)
    data.read.clear()
    return data, plain, model, optimizer, loader


@pytest.mark.parametrize("make", [language.gpt2, language.bert])
def test_losses_of_lora_are_the_ratio_of_densities(make):
    lengths = np.random.default_rng(0).integers(3, language.LENGTH + 1, size=30)
    data, plain, model, optimizer, loader = made(make, lengths=lengths, clip=0.05)
    tracker = expost.torch.track(optimizer, loader, row_count="public")
    noted = Noted(optimizer, plain, data)
    for _ in range(2):
        for batch in loader:
            noted.batch, data.read = data.read, []
            optimizer.zero_grad()
            row_loss(model(input_ids=batch["input_ids"]), batch["labels"]).backward()
            optimizer.step()
            data.read.clear()
    profile = tracker.profile()
    assert np.max(np.abs(noted.total)) > 0.1
    np.testing.assert_allclose(profile.loss, noted.total, rtol=0, atol=1e-8)


@torch.no_grad()
def test_a_row_loss_is_a_mean_over_rows_of_functions_of_one_row():
    model = language.gpt2()
    lengths = [10, 3, 7, 1]
    data = language.Texts(language.strange(4, seed=2), lengths)
    batch = {k: torch.stack([data[row][k] for row in range(4)]) for k in data[0]}
    outputs = model(input_ids=batch["input_ids"])
    alone = [
        row_loss(model(input_ids=data[row]["input_ids"][None]), data[row]["labels"][None])
        for row in range(4)
    ]
    assert float(row_loss(outputs, batch["labels"])) == pytest.approx(
        float(sum(alone)) / 4, rel=1e-5
    )
    # A text of one word has nothing to predict.
    assert float(alone[3]) == 0
    whole = model(input_ids=data[0]["input_ids"][None], labels=data[0]["labels"][None])
    assert float(alone[0]) == pytest.approx(float(whole.loss), rel=1e-5)
    # The model's own loss of a batch weighs rows by their lengths.
    own = model(input_ids=batch["input_ids"], labels=batch["labels"]).loss
    assert abs(float(own) - float(sum(alone)) / 4) > 0.05


def trainer(tmp_path, made, callback, **options):
    data, _, model, optimizer, loader = made

    class PrivateTrainer(transformers.Trainer):
        def get_train_dataloader(self):
            return loader

    settings = {
        "output_dir": str(tmp_path / "trainer"),
        "num_train_epochs": 2,
        "save_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": True,
        "lr_scheduler_type": "constant",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return PrivateTrainer(
            model=model,
            args=transformers.TrainingArguments(**settings | options),
            train_dataset=data,
            optimizers=(optimizer, None),
            compute_loss_func=row_loss,
            callbacks=[callback],
        )


def test_a_trainer_is_tracked_by_its_callback(tmp_path):
    run = made(language.gpt2)
    data, plain, _, optimizer, loader = run
    callback = TrackingCallback(row_count="public", folder=tmp_path / "profile")
    with pytest.raises(InvalidInput, match="nothing was trained"):
        callback.profile  # noqa: B018 (it raises)
    noted = Noted(optimizer, plain, data)
    # Batches are read one at a time, just before their step.
    note = noted.note

    def with_batch():
        noted.batch, data.read = data.read, []
        note()
        data.read.clear()

    noted.note = with_batch
    trainer(tmp_path, run, callback).train()
    profile = callback.profile
    assert callback.tracker.steps == 2 * len(loader)
    assert np.max(np.abs(noted.total)) > 0.1
    np.testing.assert_allclose(profile.loss, noted.total, rtol=0, atol=1e-8)
    files = sorted(path.name for path in (tmp_path / "profile").iterdir())
    assert files == ["profile.CURATOR-ONLY.json", "profile.CURATOR-ONLY.parquet"]
    assert all(path.stat().st_mode & 0o77 == 0 for path in (tmp_path / "profile").iterdir())
    # The optimizer is Opacus' own again.
    assert "add_noise" not in vars(optimizer)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"gradient_accumulation_steps": 2}, "gradient_accumulation_steps"),
        ({"auto_find_batch_size": True}, "auto_find_batch_size"),
    ],
)
def test_what_a_trainer_must_not_do(tmp_path, options, match):
    callback = TrackingCallback(row_count="public")
    with pytest.raises(InvalidInput, match=match):
        trainer(tmp_path, made(language.gpt2), callback, **options).train()


def test_a_random_row_stands_in_for_an_empty_batch_of_texts():
    data, _, model, optimizer, loader = made(language.gpt2, rand_on_empty=True)
    loader.batch_sampler.sample_rate = 0.03
    tracker = expost.torch.track(optimizer, loader, row_count="fixed")
    sizes = []
    for _ in range(4):
        for batch in loader:
            sizes.append(len(data.read))
            optimizer.zero_grad()
            row_loss(model(input_ids=batch["input_ids"]), batch["labels"]).backward()
            optimizer.step()
            data.read.clear()
    assert min(sizes) == 0
    assert tracker.steps == len(sizes)


class Criterion:
    """``row_loss`` as Opacus' criteria are called: with a reduction."""

    reduction = "mean"

    def __call__(self, outputs, labels):
        if self.reduction == "mean":
            return row_loss(outputs, labels)
        logits = outputs["logits"]
        rows = zip(logits, labels, strict=True)
        return torch.stack([row_loss({"logits": one[None]}, own[None]) for one, own in rows])


@pytest.mark.parametrize("wrap", [True, False])
def test_ghost_clipping_in_a_trainer(tmp_path, wrap):
    base = language.gpt2(dtype=torch.float64)
    plain, data = copy.deepcopy(base), Numbered(language.ordinary(30, seed=1))
    hooks, optimizer, criterion, loader = quiet(PrivacyEngine).make_private(
        module=base,
        optimizer=torch.optim.SGD([p for p in base.parameters() if p.requires_grad], lr=0.5),
        data_loader=DataLoader(data, batch_size=6),
        noise_multiplier=1.0,
        max_grad_norm=0.05,
        grad_sample_mode="ghost",
        criterion=Criterion(),
        wrap_model=wrap,
    )
    data.read.clear()
    noted = Noted(optimizer, plain, data)
    note = noted.note

    def with_batch():
        noted.batch, data.read = data.read, []
        note()
        data.read.clear()

    noted.note = with_batch
    made = data, plain, hooks if wrap else base, optimizer, loader
    callback = TrackingCallback(row_count="public", **({} if wrap else {"model": hooks}))
    run = trainer(tmp_path, made, callback, max_grad_norm=0.0)
    run.compute_loss_func = lambda outputs, labels, **_: criterion(outputs, labels)
    run.train()
    assert callback.tracker.steps == 10
    assert np.max(np.abs(noted.total)) > 0.1
    np.testing.assert_allclose(callback.profile.loss, noted.total, rtol=0, atol=1e-8)
    # The Trainer's own clipping would change the sum.
    clipping = trainer(tmp_path, made, callback, max_grad_norm=1.0)
    with pytest.raises(InvalidInput, match=r"max_grad_norm=1\.0"):
        clipping.train()


def test_canaries_are_compared_with_the_guarantee_for_one_row():
    _, _, model, optimizer, loader = made(language.gpt2)
    persons = [f"writer {row // 5}" for row in range(30)]
    tracker = expost.torch.track(optimizer, loader, row_count="public", persons=persons)
    for batch in loader:
        optimizer.zero_grad()
        row_loss(model(input_ids=batch["input_ids"]), batch["labels"]).backward()
        optimizer.step()
    attackers = tracker.attackers()
    one_row = DPSGD(noise_multiplier=1.0, sampling_rate=0.2, steps=5)
    assert attackers.canary_epsilon == pytest.approx(one_row.epsilon(1e-5), rel=1e-6)
    between = (attackers.canary_epsilon + attackers.first.epsilon) / 2
    tracker.report_lower_bound(
        LowerBound(
            epsilon=between, delta=1e-5, confidence=0.95, method="", detail="99 of 99", most=between
        )
    )
    assert tracker.attackers().is_contradicted
    assert "The guarantee for one row is ε = " in str(tracker)
    assert "contradict" in str(tracker)


def test_a_training_that_continues_is_refused(tmp_path):
    callback = TrackingCallback(row_count="public")
    first = trainer(tmp_path, made(language.gpt2), callback)
    first.state.global_step = 3
    with pytest.raises(InvalidInput, match="continues after step 3"):
        callback.on_train_begin(first.args, first.state, None, optimizer=first.optimizer)


def test_an_optimizer_without_opacus_is_refused(tmp_path):
    run = list(made(language.gpt2))
    run[3] = torch.optim.SGD(run[2].parameters(), lr=0.1)
    with pytest.raises(InvalidInput, match="not one of Opacus"):
        trainer(tmp_path, run, TrackingCallback()).train()


def test_without_the_callback_opacus_refuses_the_second_step(tmp_path):
    """Why the callback calls the optimizer's ``zero_grad``: the Trainer does not."""

    class Forgetful(TrackingCallback):
        def on_step_end(self, args, state, control, **kwargs):
            pass

    with pytest.raises(ValueError, match=r"must call optimizer\.zero_grad"):
        trainer(tmp_path, made(language.gpt2), Forgetful(row_count="public")).train()


def test_persons_who_wrote_many_texts(tmp_path):
    persons = [f"writer {row % 7}" for row in range(30)]
    callback = TrackingCallback(row_count="public", persons=persons)
    trainer(tmp_path, made(language.gpt2), callback).train()
    profile = callback.profile
    assert (len(profile), profile.unit, profile.rows) == (7, "person", 30)
    assert profile.sizes.tolist() == [5, 5, 4, 4, 4, 4, 4]
    assert "writer" in str(profile)


def test_canaries_are_planted_by_fair_coins():
    data, canaries = (
        language.Texts(language.ordinary(20, 0)),
        language.Texts(language.strange(40, 1)),
    )
    planted = expost.torch.plant(data, canaries, random_state=3)
    assert len(planted.dataset) == 20 + planted.included.sum()
    assert 8 < planted.included.sum() < 32
    inside = [planted.dataset[int(row)]["input_ids"] for row in planted.positions]
    chosen = canaries.texts[np.flatnonzero(planted.included)]
    assert torch.equal(torch.stack(inside), chosen)
    assert {expost.torch.plant(data, canaries).included.tobytes() for _ in range(4)} != {
        planted.included.tobytes()
    }
    with pytest.raises(InvalidInput, match="at least 8"):
        expost.torch.plant(data, language.Texts(language.strange(3, 1)))
    with pytest.raises(InvalidInput, match="each of 40"):
        planted.lower_bound([0.0] * 20)
    # Scores that know the coins prove much, scores without a model nothing.
    assert planted.lower_bound(planted.included.astype(float)).epsilon > 1
    assert planted.lower_bound(np.random.default_rng(0).normal(size=40)).epsilon < 1


def test_a_lower_bound_stands_next_to_the_guarantee():
    data = language.Texts(language.ordinary(60, 0))
    canaries = language.Texts(language.strange(40, 1))
    planted = expost.torch.plant(data, canaries, random_state=3)
    model, optimizer, loader = language.private(
        language.gpt2(), planted.dataset, batch_size=10, fixed=0.125
    )
    before = language.losses_of(model, canaries.texts)
    tracker = expost.torch.track(optimizer, loader, row_count="fixed")
    for batch in loader:
        optimizer.zero_grad()
        row_loss(model(input_ids=batch["input_ids"]), batch["labels"]).backward()
        optimizer.step()
    scores = before - language.losses_of(model, canaries.texts)
    bound = planted.lower_bound(scores)
    with pytest.raises(InvalidInput, match="LowerBound"):
        tracker.report_lower_bound(bound.epsilon)
    assert bound.epsilon <= tracker.guarantee().epsilon(1e-5)
    tracker.report_lower_bound(bound)
    profile = tracker.profile()
    for shown in (str(tracker), str(profile), render_html(document_of(profile))):
        assert "Canaries prove" in shown
        assert bound.detail in shown
    # One that contradicts the guarantee says so.
    tracker.report_lower_bound(planted.lower_bound(planted.included.astype(float), delta=1e-5))
    guaranteed = tracker.guarantee().epsilon(1e-5)
    contradicted = tracker.attackers().audited.epsilon > guaranteed
    assert ("contradict" in str(tracker)) == contradicted


@pytest.mark.filterwarnings("ignore:Secure RNG turned off")
def test_the_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert page.run(page.example("TrackingCallback")) > 30
