"""What no method may do to the model it explains: change it, during the work or after an error."""

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor, nn

from hf_nmt_interp.attribution import Scores
from hf_nmt_interp.models.families import parts
from tests.tiny_models import tiny_model


def state_of(model: nn.Module) -> dict:
    """Everything about a model that explaining it must not change."""
    hooks = {
        f"{name}.{kind}": list(getattr(module, kind))
        for name, module in model.named_modules()
        for kind in vars(module)
        if kind.endswith("_hooks") or kind.endswith("_hooks_with_kwargs")
    }
    return {
        "weights": {name: value.clone() for name, value in model.state_dict().items()},
        "hooks": hooks,
        "config": copy.deepcopy(model.config.to_dict()),
        "attributes": {name: sorted(vars(module)) for name, module in model.named_modules()},
        "training": {name: module.training for name, module in model.named_modules()},
        "requires_grad": {name: parameter.requires_grad for name, parameter in model.named_parameters()},
        "grads": {name: parameter.grad for name, parameter in model.named_parameters()},
    }


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Context after which the model and the gradient mode must be as before."""
    before, grad_mode = state_of(model), torch.is_grad_enabled()
    yield
    after = state_of(model)
    assert all(torch.equal(after["weights"][name], value) for name, value in before["weights"].items())
    assert all(after["grads"][name] is value for name, value in before["grads"].items())
    for name in ("hooks", "config", "attributes", "training", "requires_grad"):
        assert after[name] == before[name], name
    assert torch.is_grad_enabled() == grad_mode


def mixed_modes(family: str) -> nn.Module:
    """A model in training mode but for one layer, with one frozen weight, some gradients and a hook of its own."""
    model = tiny_model(family, **({"dropout_rate": 0.5} if family.startswith("t5") else {})).train()
    parts(model).encoder.layers[0][0].norm.eval()
    first, second, *_ = model.parameters()
    first.requires_grad_(False)
    second.grad = torch.ones_like(second)
    model.register_forward_hook(lambda *_: None)
    return model


def check_model_is_left(model: nn.Module, explain: Callable[[], Scores]) -> None:
    """Explaining leaves the model as it was, needs no gradient afterwards and knows no dropout."""
    with unchanged(model):
        scores = explain()
    assert not scores.source.requires_grad
    model.eval()
    torch.testing.assert_close(scores.source, explain().source)


def check_model_is_left_after_an_error(model: nn.Module, explain: Callable[[], object], broken: nn.Module) -> None:
    """An error in the forward pass of one module gets out and leaves the model as it was."""

    def fail(*_):
        raise RuntimeError("in the middle of the forward pass")

    handle = broken.register_forward_hook(fail)
    with unchanged(model), pytest.raises(RuntimeError, match="in the middle of the forward pass"):
        explain()
    handle.remove()


def check_threads_can_share(model: nn.Module, explain: Callable[[dict], Tensor], batches: Sequence[dict]) -> None:
    """Threads that explain one batch each, again and again, get what one alone gets, and leave no hook."""
    expected = [explain(batch) for batch in batches]
    found: list[list[Tensor]] = [[] for _ in batches]

    def work(number: int) -> None:
        for _ in range(5):
            found[number].append(explain(batches[number]))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(batches))]
    with unchanged(model):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for results, alone in zip(found, expected, strict=True):
        assert len(results) == 5
        for result in results:
            torch.testing.assert_close(result, alone, atol=1e-5, rtol=1e-5)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
