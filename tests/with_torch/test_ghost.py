"""Ghost clipping: losses without any row's gradient, and what is refused."""

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from opacus.optimizers import DPOptimizerFastGradientClipping
from opacus.schedulers import ExponentialGradClip, ExponentialNoise
from opacus.utils.adaptive_clipping.adaptive_clipping_utils import PrivacyEngineAdaptiveClipping
from torch import nn
from torch.func import functional_call, jvp

from dpsgd.nets import CLASSES, NETS, net
from dpsgd.tracked import HOOKS, Run, quiet
from expost.errors import ConvergenceError, InvalidInput
from expost.torch import track
from expost.torch.noisy_step import packed

pytestmark = [
    pytest.mark.filterwarnings(HOOKS),
    # Nothing is stated of the number of rows.
    pytest.mark.filterwarnings("ignore::expost.errors.PrivacyLeakWarning"),
]

TOLERANCE = {torch.float32: 5e-6, torch.float64: 1e-9}


def assert_losses(run, expected):
    tracked = run.tracker.profile()
    assert np.max(np.abs(expected)) > 0.1
    np.testing.assert_allclose(tracked.loss, expected, rtol=0, atol=TOLERANCE[run.dtype])
    slack = 1e-6 if run.dtype is torch.float32 else 1e-12
    assert np.all(tracked.loss_low - slack <= expected)
    assert np.all(expected <= tracked.loss_high + slack)
    assert np.max(tracked.loss_high - tracked.loss_low) < (1e-3 if slack == 1e-6 else 1e-9)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("mode", ["ghost", "fast"])
@pytest.mark.parametrize("name", NETS)
def test_losses_are_the_ratio_of_densities(name, mode, dtype):
    run = Run(mode=mode, dtype=dtype, **net(name)).epochs()
    assert run.tracker.steps == len(run.noted) == 6
    assert_losses(run, run.losses())
    # It would have seen a scale that is 1 % off.
    assert np.max(np.abs(run.losses(stretch=1.01) - run.losses())) > 1e-3
    assert any("measured, not proved" in notice for notice in run.tracker.profile().notices)


class Scaled(nn.Module):
    """A parameter without dimensions."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.3))

    def forward(self, x):
        return x * self.scale


@pytest.mark.parametrize("mode", ["hooks", "ghost", "fast"])
@pytest.mark.parametrize("loop", [{}, {"batch_size": 1}, {"pieces": 2}], ids=str)
def test_a_parameter_without_dimensions(mode, loop):
    run = Run(mode=mode, make=lambda: nn.Sequential(nn.Linear(5, 3), Scaled()), **loop).epochs()
    assert_losses(run, run.losses())


LOOPS = {
    "pieces": {"pieces": 2},
    "workers": {"workers": 2},
    "pieces and workers": {"pieces": 2, "workers": 2, "separate": True},
    "empty batches": {"batch_size": 1},
    "shuffled": {"poisson": False, "tracking": {"public_batches": True}},
    "full batch": {"batch_size": 12},
    "not wrapped": {"wrap": False},
    "AdamW": {"optimizing": torch.optim.AdamW, "rate": 0.05},
    "sums": {
        "private": {"loss_reduction": "sum", "criterion": nn.CrossEntropyLoss(reduction="sum")}
    },
    "weighted": {"weight": 3.0},
    "secure": {"secure": True},
}


@pytest.mark.parametrize("loop", LOOPS)
def test_loops(loop):
    run = Run(mode="ghost", **LOOPS[loop]).epochs()
    assert_losses(run, run.losses())
    if loop == "empty batches":
        assert min(len(noted.batch) for noted in run.noted) == 0


@pytest.mark.parametrize("loop", [{}, {"pieces": 3}, {"wrap": False}], ids=str)
@pytest.mark.parametrize("name", ["perceptron", "transformer"])
def test_hidden_batches(name, loop):
    run = Run(
        mode="ghost", tracking={"adversary": "hidden-batches"}, **{**net(name), **loop}
    ).epochs()
    assert_losses(run, run.losses(rate=1 / 3))
    assert np.max(np.abs(run.tracker.profile().loss - run.losses())) > 0.01
    assert "6 passes" in run.tracker.cost


@pytest.mark.parametrize("adversary", ["known-batches", "hidden-batches"])
@pytest.mark.parametrize("mode", ["hooks", "ghost", "fast"])
@pytest.mark.parametrize(
    "loop",
    [{}, {"pieces": 2, "separate": True}, {"batch_size": 2}, {"secure": True}],
    ids=str,
)
def test_the_training_is_the_same_bit_for_bit(loop, mode, adversary):
    # Of an empty batch Opacus computes no norm of an embedding.
    name = "perceptron" if "batch_size" in loop else "transformer"
    options = {"mode": mode, "dtype": torch.float32, **net(name), **loop}
    tracked = Run(tracking={"adversary": adversary}, **options).epochs()
    drawn = torch.get_rng_state()
    plain = Run(tracking=None, **options).epochs()
    assert tracked.theta.tobytes() == plain.theta.tobytes()
    assert torch.equal(drawn, torch.get_rng_state())
    assert tracked.engine.accountant.history == plain.engine.accountant.history
    if mode == "ghost":
        norms = [run.hooks.per_sample_gradient_norms for run in (tracked, plain)]
        assert torch.equal(*norms)


def test_ghost_and_per_row_gradients_agree():
    runs = [Run(mode=mode, **net("transformer")).epochs() for mode in ("hooks", "ghost", "fast")]
    hooks, ghost, fast = (run.tracker.profile() for run in runs)
    np.testing.assert_allclose(ghost.loss, hooks.loss, rtol=0, atol=1e-9)
    np.testing.assert_allclose(fast.loss, hooks.loss, rtol=0, atol=1e-9)
    np.testing.assert_allclose(ghost.distance, hooks.distance, rtol=1e-9)


def test_blocks_change_nothing(monkeypatch):
    monkeypatch.setattr("expost.torch.grad_samples.WIDTH", 7)
    monkeypatch.setattr("expost.torch.grad_samples.BLOCK", 21)
    monkeypatch.setattr("expost.torch.opacus.BLOCK", 80)
    monkeypatch.setattr("expost.torch.ghost.BLOCK", 30)
    clips = {"clipping": "per_layer", "max_grad_norm": [0.5] * 9}
    for options in ({}, {"mode": "ghost"}, {"private": clips}):
        run = Run(**net("convolution"), **options).epochs()
        assert_losses(run, run.losses())


def test_parts_cover_every_entry_once():
    sizes = [3, 1, 10, 4]
    parts = list(packed(sizes, 4))
    entries = [(index, at) for part in parts for index, cut in part for at in range(99)[cut]]
    assert entries == [(index, at) for index, size in enumerate(sizes) for at in range(size)]
    assert [sum(cut.stop - cut.start for _, cut in part) for part in parts] == [4, 4, 4, 4, 2]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_language_model_with_lora():
    transformers, peft = pytest.importorskip("transformers"), pytest.importorskip("peft")

    def make():
        sizes = {"n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 6, "vocab_size": 11}
        tokens = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
        masks = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
        config = transformers.GPT2Config(**sizes, **tokens, **masks, num_labels=CLASSES)
        model = transformers.GPT2ForSequenceClassification(config)
        lora = peft.LoraConfig(r=2, target_modules=["c_attn"], fan_in_fan_out=True)
        return peft.get_peft_model(model, lora).train()

    class Logits(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = make()

        def forward(self, x):
            return self.model(input_ids=x).logits

    for wrap in (True, False):
        run = Run(mode="ghost", **{**net("transformer"), "make": Logits}, wrap=wrap).epochs()
        assert len(run.optimizer.params) == 4
        assert_losses(run, run.losses())


def test_virtual_steps_by_hand():
    run = Run(mode="ghost", poisson=False, tracking={"public_batches": True}, batch_size=3)
    for number, batch in enumerate(run.loader):
        run.optimizer.signal_skip_step(do_skip=number % 2 == 0)
        run.step(batch)
    assert [len(noted.batch) for noted in run.noted] == [6, 6]
    assert_losses(run, run.losses())


def test_the_noise_may_change_between_steps():
    run = Run(mode="ghost")
    schedule = ExponentialNoise(run.optimizer, gamma=0.9)
    for _ in range(3):
        run.epochs(1)
        schedule.step()
    np.testing.assert_allclose(run.tracker.profile().loss, run.losses(), rtol=0, atol=1e-9)


class Dropped(nn.Module):
    """Masks for the whole batch, so that they can be drawn once more."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(5, 6), nn.Linear(6, CLASSES)
        self.drop = nn.Dropout(0.4)

    def forward(self, x):
        return self.last(self.drop(self.first(x).tanh()))


def forward_mode(run, noted, batch, masks):
    """(rows,) each row's loss of a step, by one forward-mode derivative along the noise."""
    plain, rows = run.plain.train(), len(batch[0])
    shapes = {name: p.shape for name, p in plain.named_parameters()}
    sizes = [shape.numel() for shape in shapes.values()]

    def parts(vector):
        split = torch.as_tensor(vector).split(sizes)
        return {name: v.view(s) for (name, s), v in zip(shapes.items(), split, strict=True)}

    def values(weights):
        torch.set_rng_state(masks)
        outputs = functional_call(plain, weights, (batch[0],))
        return nn.functional.cross_entropy(outputs, batch[1], reduction="none")

    theta = parts(noted.theta)
    jacobian = torch.func.jacrev(values)(theta)
    g = torch.cat([jacobian[name].reshape(rows, -1) for name in shapes], dim=1)
    norm = g.norm(dim=1)
    factor = (noted.clip / (norm + 1e-6)).clamp(max=1.0)
    noise = torch.as_tensor(noted.published) - factor @ g
    _, along = jvp(values, (theta,), (parts(noise),))
    terms = 2 * factor * along + (factor * norm) ** 2
    return (terms / (2 * noted.scale**2)).numpy()


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_dropout_by_a_forward_mode_derivative_with_the_same_masks(mode):
    run = Run(mode=mode, make=Dropped)
    expected = np.zeros(12)
    for _ in range(2):
        for batch in run.loader:
            masks = torch.get_rng_state()
            run.step(batch)
            after = torch.get_rng_state()
            np.add.at(expected, batch[2], forward_mode(run, run.noted[-1], batch, masks))
            torch.set_rng_state(after)
    np.testing.assert_allclose(run.tracker.profile().loss, expected, rtol=0, atol=1e-9)
    # The model is known in ghost mode alone.
    notices = run.tracker.profile().notices
    assert any("conditional on its masks" in text for text in notices) == (mode == "ghost")
    assert any("If the model draws" in text for text in notices) == (mode == "hooks")
    plain = Run(mode=mode, make=Dropped, tracking=None).epochs(2)
    assert run.theta.tobytes() == plain.theta.tobytes()


def test_draws_of_a_function_are_not_excluded():
    class Functional(Dropped):
        def __init__(self):
            super().__init__()
            del self.drop

        def forward(self, x):
            return self.last(nn.functional.dropout(self.first(x).tanh(), 0.4, self.training))

    for options in ({"mode": "ghost"}, {}):
        notices = Run(make=Functional, **options).epochs(1).tracker.notices
        assert any("If the model draws" in text for text in notices)
    # A full pass refuses them.
    notices = Run(tracking={"adversary": "hidden-batches"}).epochs(1).tracker.notices
    assert not any("If the model draws" in text for text in notices)


def test_dropout_of_rows_that_were_not_sampled_is_refused():
    run = Run(mode="ghost", make=Dropped, tracking={"adversary": "hidden-batches"})
    with pytest.raises(InvalidInput, match="draws random numbers"):
        run.epochs(1)
    with pytest.raises(InvalidInput, match="could not be tracked"):
        run.tracker.profile()


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_half_precision_is_an_estimate_without_an_interval(mode):
    run = Run(mode=mode, dtype=torch.bfloat16).epochs()
    profile = run.tracker.profile()
    assert np.max(np.abs(profile.loss - run.losses())) < 0.1
    assert np.all(np.isinf(profile.loss_high[profile.loss != 0]))
    assert any("without certified intervals" in notice for notice in profile.notices)
    exact = Run(mode=mode).epochs().tracker.profile()
    assert not any("Half precision" in notice for notice in exact.notices)


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_autocast_is_half_precision(mode):
    run = Run(mode=mode, dtype=torch.float32)
    for batch in run.loader:
        run.optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = run.loss(batch)
        loss.backward()
        run.current = batch[2].tolist()
        run.optimizer.step()
    profile = run.tracker.profile()
    assert np.max(np.abs(profile.loss - run.losses())) < 0.2
    assert any("Half precision" in notice for notice in profile.notices)
    assert np.all(np.isinf(profile.loss_high[profile.loss != 0]))


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_a_grad_scaler_is_refused(mode):
    run = Run(mode=mode, dtype=torch.float32)
    scaler = torch.amp.GradScaler("cpu")
    batch = next(iter(run.loader))
    run.optimizer.zero_grad()
    # Scaled by hand: of a loss in ghost mode a scaler cannot take the product.
    scaler.scale(torch.ones(1))
    run.loss(batch).backward()
    with pytest.raises(InvalidInput, match="GradScaler"):
        scaler.step(run.optimizer)
    with pytest.raises(InvalidInput, match="could not be tracked"):
        run.tracker.profile()


def test_a_gradient_that_is_not_a_number_is_refused():
    run = Run(mode="ghost")
    run.data.tensors[0][:, 0] = float("nan")
    with pytest.raises(ConvergenceError, match="NaN or infinite"):
        run.epochs(1)
    with pytest.raises(InvalidInput, match="could not be tracked"):
        run.tracker.profile()


# Opacus' own norms that are not those of the gradients which are summed.


class Tied(nn.Module):
    """A projection by the weights of the embedding, in a layer without a ghost rule."""

    class Projection(nn.Linear):
        pass

    def __init__(self, tokens=11):
        super().__init__()
        self.tokens = nn.Embedding(tokens, 4)
        self.out = self.Projection(4, tokens, bias=False)
        self.out.weight = self.tokens.weight
        self.head = nn.Linear(tokens, CLASSES)

    def forward(self, x):
        return self.head(self.out(self.tokens(x)).mean(dim=1))


class Deep(nn.Module):
    """A linear layer on a tensor of four dimensions."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 3)
        self.last = nn.Linear(3, CLASSES)

    def forward(self, x):
        return self.last(self.first(x).mean(dim=(1, 2)))


class Unused(nn.Module):
    """A layer takes part in every second pass."""

    def __init__(self):
        super().__init__()
        self.both, self.some, self.passes = nn.Linear(5, 5), nn.Linear(5, 5), 0
        self.last = nn.Linear(5, CLASSES)

    def forward(self, x):
        self.passes += 1
        hidden = self.both(x)
        return self.last(self.some(hidden) if self.passes % 2 else hidden)


class Padded(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.tokens = nn.Embedding(11, 4, **options)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.head(self.tokens(x).mean(dim=1))


def circular():
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1, padding_mode="circular"), nn.Flatten(), nn.Linear(48, CLASSES)
    )


class Jittered(nn.Module):
    """A layer of parameters with dropout inside, which Opacus differentiates once more."""

    def __init__(self):
        super().__init__()
        self.weight, self.drop = nn.Parameter(torch.randn(5, CLASSES)), nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(x) @ self.weight


class Doubled(nn.Linear):
    """A layer whose registered rule is not its derivative."""

    def forward(self, x):
        return 2 * super().forward(x)


def given(kind):
    return net({"tokens": "transformer", "image": "convolution", "plain": "perceptron"}[kind])


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (Tied, "tokens", "two layers share a parameter"),
        (Deep, "image", "4 dimensions"),
        (lambda: Padded(padding_idx=0), "tokens", "padding_idx"),
        (lambda: Padded(max_norm=1.0), "tokens", "max_norm"),
        (circular, "image", "padding_mode"),
        (Unused, "plain", "not every parameter"),
    ],
)
def test_norms_that_are_not_those_of_the_sum_are_refused(make, kind, message):
    run = Run(mode="ghost", **{**given(kind), "make": make})
    with pytest.raises(InvalidInput, match=message):
        run.epochs(2)
    with pytest.raises(InvalidInput, match="could not be tracked"):
        run.tracker.profile()


@pytest.mark.parametrize("between", [False, True], ids=["before the pass", "within it"])
@pytest.mark.parametrize("frozen", [True, False], ids=["frozen", "unfrozen"])
@pytest.mark.parametrize(("mode", "wrap"), [("ghost", True), ("ghost", False), ("fast", True)])
def test_a_parameter_that_is_frozen_or_unfrozen_midway_is_refused(mode, wrap, frozen, between):
    def make():
        module = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3))
        module[0].weight.requires_grad_(frozen)
        return module

    run = Run(mode=mode, wrap=wrap, make=make).epochs(1)
    batch = next(iter(run.loader))
    steps = run.tracker.steps
    weight = next(run.model.parameters())

    def step():
        loss = run.loss(batch) if between else None
        weight.requires_grad_(not frozen)
        (loss or run.loss(batch)).backward()

    with pytest.raises(InvalidInput, match="frozen or unfrozen"):
        step()
    assert run.tracker.steps == steps
    run.tracker.detach()
    run.model.eval()(batch[0])


def test_parameters_that_are_frozen_midway_have_no_part_in_per_row_gradients():
    run = Run(poisson=False, tracking={"public_batches": True}).epochs(1)
    expected = run.losses()
    assert_losses(run, expected)
    for parameters in (run.model, run.plain):
        next(parameters.parameters()).requires_grad_(False)
    run.noted.clear()
    with torch.no_grad():
        for plain, trained in zip(run.plain.parameters(), run.model.parameters(), strict=True):
            plain.copy_(trained)
    run.epochs(1)
    assert_losses(run, expected + run.losses())


class Positions(nn.Module):
    """Positions without a batch dimension."""

    def __init__(self, length=6):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(11, 4), nn.Embedding(length, 4)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x):
        where = torch.arange(self.positions.num_embeddings)
        return self.head((self.tokens(x) + self.positions(where)).mean(dim=1))


@pytest.mark.parametrize("mode", ["hooks", "ghost"])
def test_gradients_that_are_not_those_of_the_rows_are_refused(mode):
    # As many rows as positions: shapes fit, and so does the sum.
    public = {"poisson": False, "tracking": {"public_batches": True}, "batch_size": 6}
    run = Run(mode=mode, **{**given("tokens"), **public, "make": Positions, "tracking": None})
    track(run.optimizer, run.loader, public_batches=True, model=run.hooks)
    with pytest.raises(InvalidInput, match=r"not those of the row|another sum"):
        run.epochs(1)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", [*NETS, "dropped"])
@pytest.mark.parametrize("loop", [{}, {"pieces": 2}, {"wrap": False}], ids=str)
def test_gradients_of_rows_are_compared_once_and_nothing_changes(loop, name, dtype):
    options = {**(net(name) if name in NETS else {"make": Dropped}), **loop, "dtype": dtype}
    plain = Run(tracking=None, separate=True, **options).epochs()
    run = Run(tracking=None, separate=True, **options)
    run.tracker = track(run.optimizer, run.loader, model=run.hooks)
    run.epochs()
    assert run.theta.tobytes() == plain.theta.tobytes()


def compared(change, **options):
    """A run whose loss is changed, and whose rows are compared where that can be done."""
    run = Run(tracking=None, **options)
    run.tracker = track(run.optimizer, run.loader, model=run.hooks)
    whole = run.loss
    run.loss = lambda batch: change(whole, batch)
    return run.epochs()


def test_several_passes_before_a_step_are_not_compared_with_one():
    run = compared(lambda whole, batch: (whole(batch) + whole(batch)) / 2)
    assert_losses(run, run.losses())


def test_parameters_that_were_changed_before_the_step_are_not_compared():
    # By another optimizer, whose step comes first.
    run = Run(tracking=None)
    run.tracker = track(run.optimizer, run.loader, model=run.hooks)
    batch = next(iter(run.loader))
    run.loss(batch).backward()
    with torch.no_grad():
        next(run.model.parameters()).add_(1.0)
    run.optimizer.step()
    assert run.tracker.steps == 1


def test_half_precision_is_not_compared():
    def half(whole, batch):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return whole(batch)

    run = compared(half, dtype=torch.float32)
    assert any("Half precision" in notice for notice in run.tracker.notices)
    np.testing.assert_allclose(run.tracker.profile().loss, run.losses(), atol=0.2)


def test_a_shared_parameter_has_its_norm_in_fast_gradient_clipping():
    run = Run(mode="fast", **{**given("tokens"), "make": Tied}).epochs()
    assert_losses(run, run.losses())


def test_a_wrong_norm_is_seen_in_the_first_pass(monkeypatch):
    run = Run(mode="ghost", tracking=None)
    rules = dict(run.hooks.NORM_SAMPLERS)
    true = rules[nn.Linear]
    rules[nn.Linear] = lambda *given: {p: 1.01 * norm for p, norm in true(*given).items()}
    monkeypatch.setattr(type(run.hooks), "NORM_SAMPLERS", rules)
    track(run.optimizer, run.loader, model=run.hooks)
    with pytest.raises(InvalidInput, match="not that of a row's gradient"):
        run.epochs(1)


def half_of_the_sum(optimizer, accumulate=DPOptimizerFastGradientClipping.accumulate):
    accumulate(optimizer)
    for p in optimizer.params:
        p.summed_grad *= 0.999


def test_another_sum_is_refused(monkeypatch):
    monkeypatch.setattr(DPOptimizerFastGradientClipping, "accumulate", half_of_the_sum)
    run = Run(mode="ghost", dtype=torch.float32)
    with pytest.raises(InvalidInput, match="another sum than the noisy sum"):
        run.epochs(1)


def test_a_clipping_bound_that_the_model_does_not_have_is_refused():
    run = Run(mode="ghost").epochs(1)
    ExponentialGradClip(run.optimizer, gamma=0.5).step()
    with pytest.raises(
        InvalidInput, match=r"clips to 1\.5 where the optimizer adds noise for 0\.75"
    ):
        run.epochs(1)


def test_two_backward_passes_in_a_step_are_refused():
    run = Run(mode="ghost", poisson=False, tracking={"public_batches": True}, batch_size=3)
    batches = iter(run.loader)
    run.loss(next(batches)).backward()
    with pytest.raises(InvalidInput, match="two backward passes"):
        run.loss(next(batches)).backward()


def test_a_step_without_the_criterion_is_refused():
    run = Run(mode="ghost")
    batch = next(iter(run.loader))
    run.criterion(run.model(batch[0]), batch[1]).backward()
    with pytest.raises(InvalidInput, match="no backward pass of its criterion"):
        run.optimizer.step()


def test_adaptive_ghost_clipping_is_refused():
    run = Run(tracking=None)
    module = nn.Linear(5, 3)
    model, optimizer, criterion, loader = quiet(PrivacyEngineAdaptiveClipping).make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=run.loader,
        poisson_sampling=False,
        grad_sample_mode="ghost",
        noise_multiplier=0.1,
        max_grad_norm=1.0,
        target_unclipped_quantile=0.5,
        min_clipbound=0.1,
        max_clipbound=2.0,
        clipbound_learning_rate=0.2,
    )
    track(optimizer, loader, model=model)
    batch = next(iter(loader))
    criterion(model(batch[0].float()), batch[1]).backward()
    with pytest.raises(InvalidInput, match="adaptive clipping is not tracked"):
        optimizer.step()


def test_what_is_given_as_the_model():
    run = Run(mode="ghost", tracking=None)
    with pytest.raises(InvalidInput, match="pass model="):
        track(run.optimizer, run.loader)
    with pytest.raises(InvalidInput, match="pass model="):
        track(run.optimizer, run.loader, model=run.plain)
    with pytest.raises(InvalidInput, match="does not have the parameters"):
        track(run.optimizer, run.loader, model=Run(mode="ghost", tracking=None).hooks)
    tracker = track(run.optimizer, run.loader, model=run.hooks)
    with pytest.raises(InvalidInput, match="already tracked"):
        track(run.optimizer, run.loader, model=run.hooks)
    tracker.detach()
    run.tracker = track(run.optimizer, run.loader, model=run.hooks)
    assert_losses(run.epochs(), run.losses())


def test_the_loss_of_hidden_batches_is_that_of_the_criterion():
    run = Run(mode="ghost", tracking=None)
    track(
        run.optimizer,
        run.loader,
        model=run.hooks,
        adversary="hidden-batches",
        loss=lambda batch: run.criterion(run.model(batch[0]), batch[1]),
    )
    with pytest.raises(InvalidInput, match="what Opacus' criterion returns"):
        run.epochs(1)


def test_opacus_has_no_ghost_clipping_by_layer():
    with pytest.raises(ValueError, match="Unsupported combination"):
        Run(mode="ghost", private={"clipping": "per_layer", "max_grad_norm": [1.0] * 4})
    assert issubclass(PrivacyEngineAdaptiveClipping, PrivacyEngine)
