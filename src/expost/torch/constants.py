"""The public constants of a run of Opacus, read from its optimizer and its loader."""

from collections.abc import Iterator
from typing import Any

from expost.errors import InvalidInput, require
from expost.mechanisms.dpsgd import SGDMechanism
from expost.mechanisms.row_count import NoisyCount, Scaling, divisor_loss

__all__ = ["described", "mechanism_of", "scaling_of"]


def mechanism_of(optimizer: Any, data_loader: Any, public_batches: bool) -> SGDMechanism:
    """Return the public constants of the run, from the optimizer and the sampler."""
    opacus = require("opacus.utils.uniform_sampler", caller="track", extra="torch")
    sampler = getattr(data_loader, "batch_sampler", None)
    if sampler is None:
        raise InvalidInput(
            "data_loader: has no batch sampler to read row numbers from; pass the loader that"
            " Opacus' PrivacyEngine.make_private returned."
        )
    if not getattr(data_loader, "in_order", True):
        raise InvalidInput("data_loader: in_order=False loses the order of batches; leave it out.")
    if isinstance(sampler, opacus.DistributedUniformWithReplacementSampler):
        raise InvalidInput("data_loader: distributed sampling is not tracked; use one process.")
    rows, rate = len(data_loader.dataset), 1.0
    if isinstance(sampler, opacus.UniformWithReplacementSampler):
        if sampler.num_samples != rows:
            raise InvalidInput(
                f"data_loader: its sampler draws from {sampler.num_samples} rows where its dataset"
                f" has {rows}; they must be of the same size."
            )
        rate = float(sampler.sample_rate)
    elif not public_batches:
        raise InvalidInput(
            f"data_loader: its {type(sampler).__name__} is not Poisson sampling; use"
            " make_private(..., poisson_sampling=True), or pass public_batches=True if batches are"
            " public."
        )
    return SGDMechanism(
        rows=rows,
        noise_multiplier=float(optimizer.noise_multiplier),
        clip=float(optimizer.max_grad_norm),
        sampling_rate=1.0 if public_batches else rate,
    )


def scaling_of(
    optimizer: Any,
    data_loader: Any,
    mechanism: SGDMechanism,
    row_count: str | NoisyCount | None,
    rows_per_person: int = 1,
) -> Scaling:
    """Return the divisor of the optimizer, with what ``make_private`` would have computed from n.

    Opacus divides by ``expected_batch_size`` (times accumulated passes) unless the loss is summed;
    ``make_private`` sets it to int(n/k), and the rate to 1/k, k the number of the loader's batches.
    Of what neighbouring data sets can have the divisor with the most evidence is taken.
    """
    stated, noisy = Scaling.parse(row_count)
    divisor = None
    if optimizer.loss_reduction == "mean":
        divisor = float(optimizer.expected_batch_size)
    rows = len(data_loader.dataset)
    dimension = sum(p.numel() for p in optimizer.params)
    computed, worst = False, None
    if divisor is not None:
        computed = divisor == int(rows * (1 / len(data_loader)))
    if divisor is not None and computed:
        given, others = divisor, set(_neighbour_divisors(data_loader, rows, rows_per_person))
        worst = 0.0  # nothing can be divided by it
        if 0 not in others | {given}:
            worst = max(others, key=lambda other: divisor_loss(dimension, given, other))
    return Scaling(
        rows=rows,
        dimension=dimension,
        sampling_rate=mechanism.sampling_rate,
        divisor=divisor,
        neighbour_divisor=worst,
        source="make_private, which computes both from the number of rows"
        if computed
        else "the optimizer and the sampler",
        row_count=stated,
        noisy=noisy,
        rows_per_person=rows_per_person,
    )


def _neighbour_divisors(data_loader: Any, rows: int, changed: int) -> Iterator[float]:
    """Yield what ``make_private`` can set the divisor to with up to ``changed`` rows less or more.

    k is a function of n and of the batch size of the loader that ``make_private`` was given. A
    Poisson loader does not keep that one (nor ``drop_last``), so that every size which leads to its
    k counts: k and the divisor are monotone in the size, and only the ends are needed.
    """
    sampler, batches = data_loader.batch_sampler, len(data_loader)
    rate = getattr(sampler, "sample_rate", None)
    sizes: list[tuple[int, bool]] = []
    if rate is None and hasattr(sampler, "batch_size"):
        sizes = [(sampler.batch_size, sampler.drop_last)]
    else:
        k = batches if rate is None else round(1 / rate)
        ends = [(-(-rows // k), (rows - 1) // (k - 1) if k > 1 else 2 * rows, False)]
        if k > 1:  # of one batch with drop_last a row less would leave no batch to train on
            ends.append((rows // (k + 1) + 1, rows // k, True))
        for least, most, drops_last in ends:
            if least <= most and rate in (None, 1 / k):
                sizes += [(least, drops_last), (most, drops_last)]
    for other in range(rows - changed, rows + changed + 1):
        if not sizes:  # the rate is not 1/k: it was chosen
            yield float(int(other * (1 / batches)))
        for size, drops_last in sizes:
            k = other // size if drops_last else -(-other // size)
            if k and rate is not None:
                k = int(1 / (1 / k))  # the length of the Poisson loader
            yield float(int(other * (1 / k))) if k else 0.0


def described(mechanism: SGDMechanism, public_batches: bool) -> str:
    """Return the run in one line."""
    if not public_batches:
        return mechanism.describe()
    return (
        f"DP-SGD, noise multiplier {mechanism.noise_multiplier:g}, clip {mechanism.clip:g}, public"
        " batches"
    )
