"""Explanations on several threads: the same results, and the number of threads as before."""

import threading

import pytest
import torch

from hf_nmt_interp.attribution import LRP, Saliency
from hf_nmt_interp.attribution.threads import shares, side_by_side, thread_count, workers
from hf_nmt_interp.errors import InputError
from tests.attribution.comparing import assert_close
from tests.tiny_models import random_batch, tiny_model

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def threads():
    """Sets the number of threads; it is as before after the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def in_new_thread(work):
    found = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


METHODS = {
    "LRP": LRP,
    "LRP by blocks of steps": lambda model: LRP(model, max_memory=2**14),
    "LRP beta": lambda model: LRP(model, alpha=0.5, beta=0.5),
    "LRP attnlrp": lambda model: LRP(model, rule="attnlrp"),
    "LRP cp_lrp": lambda model: LRP(model, rule="cp_lrp"),
    "LRP gamma": lambda model: LRP(model, rule="gamma"),
    "saliency": Saliency,
    "saliency piece by piece": lambda model: Saliency(model, max_memory=2**18),
    "SmoothGrad": lambda model: Saliency(model, smoothgrad=3),
}


@pytest.mark.parametrize("lengths", [[(7, 9)], [(7, 9), (3, 4), (12, 5), (1, 1)]], ids=["one", "several"])
@pytest.mark.parametrize("way", ["plain", "with a hook"])
@pytest.mark.parametrize("name", METHODS)
def test_results_do_not_depend_on_the_number_of_threads(name, way, lengths, threads):
    model = tiny_model("marian").double()
    if way == "with a hook":  # gradients come from autograd then
        model.register_forward_hook(lambda *_: None)
    batch, method = random_batch(model, lengths), METHODS[name](model)
    found = []
    for count in (1, 2, 3):
        threads(count)
        found.append(method(**batch))
        assert torch.get_num_threads() == count
    for scores in found[1:]:
        for part in ("source", "prefix", "start", "log_probs"):
            one, several = getattr(found[0], part), getattr(scores, part)
            assert_close(several, one, 1e-8)  # pieces of a batch: the last digits may differ, as between batches
            if name.startswith("LRP") and name != "LRP by blocks of steps" and len(lengths) == 1:
                assert torch.equal(several, one)


def test_head_relevance_does_not_depend_on_the_number_of_threads(threads):
    model = tiny_model("marian")
    batches, found = [random_batch(model, [(7, 9), (3, 4), (5, 5)])], []
    for count in (1, 3):
        threads(count)
        found.append(LRP(model).head_relevance(batches))
    for kind in ("encoder", "decoder", "cross"):
        torch.testing.assert_close(found[1][kind], found[0][kind], rtol=0, atol=1e-6)


def test_work_is_divided_and_comes_back_in_order(threads):
    threads(3)
    together = threading.Barrier(3, timeout=30)  # breaks unless three threads meet

    def work(number):
        together.wait()
        return number, torch.get_num_threads(), thread_count(), torch.is_grad_enabled()

    with workers(CPU), torch.no_grad():
        assert thread_count() == 3
        assert shares(7) == [slice(0, None, 3), slice(1, None, 3), slice(2, None, 3)]
        assert side_by_side(work, range(6)) == [(number, 1, 1, False) for number in range(6)]
    assert thread_count() == 1
    assert torch.get_num_threads() == 3
    assert in_new_thread(torch.get_num_threads) == 3


@pytest.mark.parametrize("bad", [0, 3])
def test_an_error_of_any_thread_is_raised(bad, threads):
    threads(2)

    def work(number):
        if number == bad:
            raise InputError("number", number, "is wrong")
        return number

    with pytest.raises(InputError, match="number"), workers(CPU):
        side_by_side(work, range(4))
    assert torch.get_num_threads() == 2
    assert in_new_thread(torch.get_num_threads) == 2


def test_an_error_inside_of_a_method_leaves_the_number_of_threads(threads):
    threads(2)
    model = tiny_model("marian")
    with torch.no_grad():
        model.model.encoder.layers[0].fc1.weight.fill_(torch.nan)
    for method in (LRP(model), Saliency(model)):
        with pytest.raises(InputError):
            method(**random_batch(model, [(5, 4), (3, 3)]))
        assert torch.get_num_threads() == 2


def test_a_thread_born_inside_has_the_same_number_afterwards(threads):
    threads(2)

    def explain():
        with workers(CPU):
            count = thread_count()
        return count, torch.get_num_threads()

    with workers(CPU):
        assert in_new_thread(explain) == (2, 2)
    assert torch.get_num_threads() == 2


def test_contexts_inside_and_other_devices_change_nothing(threads):
    threads(2)
    with workers(torch.device("meta")):
        assert (thread_count(), torch.get_num_threads()) == (1, 2)
    with workers(CPU), workers(CPU):
        assert (thread_count(), torch.get_num_threads()) == (2, 1)
    assert torch.get_num_threads() == 2
