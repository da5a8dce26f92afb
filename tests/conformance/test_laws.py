"""Every mechanism keeps the laws of DESIGN.md (mutants: test_mutants.py)."""

import pytest

from conformance import laws
from conformance.laws import RELATIONS
from conformance.subjects import PUBLISHED, REMOVE, SUBJECTS
from evidence import record

simulations = laws.Simulations()
each_subject = pytest.mark.parametrize("subject", SUBJECTS, ids=lambda s: s.name)
each_relation = pytest.mark.parametrize("relation", RELATIONS, ids=lambda r: r.value)


@each_relation
@each_subject
def test_losses_are_the_brute_force_log_ratio(subject, relation):
    laws.losses_are_the_brute_force_log_ratio(subject, relation)


@each_relation
@each_subject
def test_change_of_measure(subject, relation):
    laws.change_of_measure(subject, relation, simulations)


@each_subject
def test_posterior_identity_where_the_laws_hardly_meet(subject):
    laws.posterior_identity(subject, REMOVE, simulations)


@each_subject
def test_density_and_sampler_belong_together(subject):
    laws.normalisation(subject)


@each_relation
@each_subject
def test_expected_loss(subject, relation):
    laws.expected_loss(subject, relation, simulations)


@each_subject
def test_a_release_carries_its_noise(subject):
    laws.release_carries_its_noise(subject)


@pytest.mark.parametrize("subject", [*SUBJECTS, PUBLISHED], ids=lambda s: s.name)
def test_guarantee(subject):
    laws.guarantee(subject)


@each_subject
def test_guarantee_outside_the_ball(subject):
    laws.guarantee_outside_the_ball(subject)


@each_subject
def test_predictions_follow_the_rules(subject):
    laws.predictions_follow_the_rules(subject)


@each_relation
@each_subject
def test_vanishing_epsilon(subject, relation):
    laws.vanishing(subject, relation)


@each_relation
@each_subject
def test_more_noise_less_posterior(subject, relation):
    laws.more_noise_less_posterior(subject, relation, simulations)


@each_relation
@each_subject
def test_order_and_copies(subject, relation):
    laws.order_and_copies(subject, relation)


@each_relation
@each_subject
def test_blocks_and_workers(subject, relation):
    laws.blocks_and_workers(subject, relation)


@each_subject
def test_intervals_hold_the_truth(subject):
    tried, tight = laws.intervals_hold_the_truth(subject, problems=12)
    assert tried >= 24
    assert tight >= tried // 2


@each_subject
def test_intervals_hold_the_cells(subject):
    assert laws.intervals_hold_the_cells(subject) == 41 * 6


@pytest.mark.long
def test_record_the_laws():
    """Every law at full counts; the figures go to docs/evidence/laws.json."""
    draws, problems = 6_000, 170
    full = laws.Simulations(draws)
    figures = {}
    for subject in SUBJECTS:
        entry: dict[str, object] = {"draws": draws}
        for relation in RELATIONS:
            entry[relation.value] = {
                "largest error of a loss against 50 digits": (
                    laws.losses_are_the_brute_force_log_ratio(subject, relation, problems=12)
                ),
                "mean exp(∓loss) − 1": laws.change_of_measure(subject, relation, full),
                "mean loss / closed form − 1": laws.expected_loss(subject, relation, full),
            }
            laws.more_noise_less_posterior(subject, relation, full)
            laws.posterior_identity(subject, relation, full)
        entry["mean q/p − 1"] = laws.normalisation(subject, draws=40_000)
        entry["largest share of the guarantee used"] = laws.guarantee(subject, draws=6_000)
        tried, tight = laws.intervals_hold_the_truth(subject, problems=problems, first=1000)
        entry["intervals tried, none missed"] = tried
        entry["of these within a tenth of their loss"] = tight
        figures[subject.name] = entry
    record(
        "laws",
        command="pytest -m long tests/conformance/test_laws.py",
        seed=laws.SEED,
        figures=figures,
    )
