"""Trials in processes: the same whatever happens on the way."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from expost.errors import InvalidInput
from papers.common.trials import Trials


class Draw:
    """A trial: its number, and two draws of its seed."""

    def __call__(self, number, seed):
        rng = np.random.default_rng(seed)
        return {"number": float(number), "drawn": rng.normal(size=2)}


class Fatal(Draw):
    """Kills its process once: where the marker is not there yet."""

    def __init__(self, marker):
        self.marker = Path(marker)

    def __call__(self, number, seed):
        if number == 3 and not self.marker.exists():
            self.marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__call__(number, seed)


class Stop(Exception):
    pass


def trials(**options):
    given = {
        "work": Draw(),
        "count": 40,
        "fields": ("number", "drawn"),
        "workers": 1,
        "checkpoint": None,
        "digest": "these",
        "entropy": 7,
        "progress": lambda done, total: None,
    }
    return Trials(**given | options)


def same(first, other):
    return all(np.array_equal(first[name], other[name]) for name in ("number", "drawn"))


def test_trials_depend_on_the_entropy_and_their_number_alone():
    results = trials().run()
    assert results["number"].tolist() == list(range(40))
    assert results["drawn"].shape == (40, 2)
    assert len(np.unique(results["drawn"])) == 80
    shorter, other = trials(count=11).run(), trials(entropy=8).run()
    assert np.array_equal(shorter["drawn"], results["drawn"][:11])
    assert not np.any(other["drawn"] == results["drawn"])
    # Without one they are drawn from the operating system.
    assert not same(trials(entropy=None).run(), trials(entropy=None).run())


def test_a_run_goes_on_where_it_was_stopped(tmp_path):
    file, reported = tmp_path / "trials.npz", []

    def stop(done, total):
        reported.append((done, total))
        if done >= 20:
            raise Stop

    with pytest.raises(Stop):
        trials(checkpoint=file, progress=stop).run()
    assert reported[0] == (0, 40)
    kept = reported[-1][0]
    assert 20 <= kept < 40
    assert file.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["trials.npz"]

    class Counted(Draw):
        calls = 0

        def __call__(self, number, seed):
            Counted.calls += 1
            return super().__call__(number, seed)

    again = []
    results = trials(work=Counted(), checkpoint=file, progress=lambda d, t: again.append(d)).run()
    assert Counted.calls == 40 - kept
    assert again[0] == kept
    assert again[-1] == 40
    assert same(results, trials().run())
    # All are there: nothing is left to do, and more may be asked for.
    assert same(trials(work=None, checkpoint=file).run(), results)
    longer = trials(count=50, checkpoint=file).run()
    assert np.array_equal(longer["drawn"][:40], results["drawn"])
    assert same(trials(work=None, count=40, checkpoint=file).run(), results)


def test_without_a_seed_the_checkpoint_keeps_it(tmp_path):
    file = tmp_path / "trials.npz"
    half = trials(count=20, checkpoint=file, entropy=None).run()
    whole = trials(checkpoint=file, entropy=None).run()
    assert np.array_equal(half["drawn"], whole["drawn"][:20])


def test_another_checkpoint_is_refused(tmp_path):
    file = tmp_path / "trials.npz"
    trials(checkpoint=file).run()
    for options in ({"digest": "others"}, {"entropy": 8}):
        with pytest.raises(InvalidInput, match="random_state"):
            trials(checkpoint=file, **options).run()
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(InvalidInput, match="not a file of trials"):
        trials(checkpoint=file).run()
    with pytest.raises(InvalidInput, match="its folder does not exist"):
        trials(checkpoint=tmp_path / "no" / "where.npz").run()


def test_a_killed_worker_changes_nothing(tmp_path):
    marker = tmp_path / "killed"
    results = trials(work=Fatal(marker), workers=2).run()
    assert marker.exists()
    assert same(results, trials().run())
