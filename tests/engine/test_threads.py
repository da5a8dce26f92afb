"""The number of cores and of torch's threads."""

from expost.engine.threads import available_cores, one_torch_thread


def test_there_is_a_core_and_torch_is_not_needed():
    assert available_cores() >= 1
    with one_torch_thread():
        pass
