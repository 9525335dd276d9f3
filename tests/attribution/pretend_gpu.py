"""A GPU that is the CPU: finds tensors on the wrong device, and counts how often the CPU would wait for the GPU.

Its tensors hold CPU tensors and compute with them, but are on a device of their own. As with CUDA, an operation takes
tensors of one device, except for single numbers; unlike with CUDA, indices must be on the device too.

torch knows one such device per process, and picks it as the accelerator: run this as a script, in a process by itself.
It prints what it found as JSON.
"""

import copy
import json
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

import hf_nmt_interp as hni
from hf_nmt_interp.attribution import METHODS, AttentionWeights
from hf_nmt_interp.attribution.registry import make_method, parse_method
from tests.fitting import fitting
from tests.tiny_models import FAMILIES, RECURRENT, random_batch, tiny_model

CASES = [*METHODS, "lrp:rule=attnlrp", "lrp:rule=cp_lrp", "lrp:rule=gamma"]
CASES += ["smoothgrad:smoothgrad=6,adaptive=true"]  # its prefix scores reach 25
OF_FAMILIES = "lrp", "alti", "saliency", "occlusion", "attention"
aten = torch.ops.aten
COPIES = {aten._to_copy.default, aten.copy_.default}
INDEXING = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}
SHAPED_BY_VALUES = {aten.nonzero.default, aten.masked_select.default, aten._unique2.default}
WAITING = {aten._local_scalar_dense.default, aten.equal.default, *SHAPED_BY_VALUES}


def tensors_of(x: Any) -> Iterator[torch.Tensor]:
    """Tensors among arguments; torch's own function for trees is slow."""
    if isinstance(x, torch.Tensor):
        yield x
    elif isinstance(x, list | tuple):
        for item in x:
            yield from tensors_of(item)


def mapped(change: Callable[[torch.Tensor], torch.Tensor], x: Any) -> Any:
    """Arguments or results with every tensor changed."""
    if isinstance(x, torch.Tensor):
        return change(x)
    return type(x)(mapped(change, item) for item in x) if type(x) in (list, tuple) else x


def inner(x: torch.Tensor) -> torch.Tensor:
    """What a tensor on the pretended device holds."""
    return x.inner if isinstance(x, Elsewhere) else x


class Backend(_DummyBackendModule):
    """What torch asks of the device."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """For torch.autocast."""
        return [torch.bfloat16]


class Elsewhere(torch.Tensor):
    """A tensor on the pretended device."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    def __new__(cls, inner: torch.Tensor, gpu: "PretendGPU"):
        """Same shape and strides, no storage."""
        with torch.inference_mode(False):
            layout = {"strides": inner.stride(), "storage_offset": inner.storage_offset(), "dtype": inner.dtype}
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, device="gpu:0", **layout)

    def __init__(self, inner: torch.Tensor, gpu: "PretendGPU") -> None:
        self.inner, self.gpu = inner, gpu

    def tolist(self):
        """Waits, as on a GPU."""
        self.gpu.waits += 1
        return self.inner.tolist()

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError(f"{func} outside of the context")


class PretendGPU(TorchDispatchMode):
    """Context in which the device exists; `waits` counts how often the CPU waited for it."""

    waits = 0

    def __enter__(self):
        torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device=...) makes its tensor on the CPU first
        return super().__enter__()

    def moved(self, model: Any) -> Any:
        """A copy of a model on this device."""
        model = copy.deepcopy(model)
        done: dict[torch.Tensor, torch.nn.Parameter] = {}  # tied weights stay tied
        for module in model.modules():
            for name, weight in module._parameters.items():
                if weight is not None and weight not in done:
                    there = Elsewhere(weight.detach(), self)
                    done[weight] = torch.nn.Parameter(there, requires_grad=weight.requires_grad)
                module._parameters[name] = None if weight is None else done[weight]
            buffers = module._buffers.items()
            module._buffers.update({name: None if x is None else Elsewhere(x, self) for name, x in buffers})
        return model

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run one operation on the CPU if all its tensors are on one device."""
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled():  # operations arrive whole there
            with self:
                found = func.decompose(*args, **kwargs)
            if found is not NotImplemented:
                return found
        tensors = list(tensors_of([*args, *kwargs.values()]))
        there = [isinstance(x, Elsewhere) for x in tensors]
        on_gpu = any(there)
        mixed = any(x.ndim and not gpu for x, gpu in zip(tensors, there, strict=True))
        if on_gpu and mixed and func not in COPIES:
            raise RuntimeError(f"{func} got tensors of two devices, of shapes {[list(x.shape) for x in tensors]}")
        by_mask = func in INDEXING and any(x.dtype == torch.bool for x in tensors[1:])
        self.waits += on_gpu and (func in WAITING or by_mask)
        cpu_args, cpu_kwargs = mapped(inner, args), {key: mapped(inner, x) for key, x in kwargs.items()}
        if (device := kwargs.get("device")) is not None:
            self.waits += on_gpu and torch.device(device).type == "cpu"
            on_gpu, cpu_kwargs["device"] = torch.device(device).type == "gpu", torch.device("cpu")
        elif func is aten.copy_.default:
            self.waits += on_gpu and not there[0]
            on_gpu = there[0]
        if func is aten._thnn_fused_lstm_cell.default:  # the CPU does not have it
            return tuple(Elsewhere(x, self) for x in _lstm_cell(*cpu_args))
        found = func(*cpu_args, **cpu_kwargs)
        if found is (cpu_args[0] if cpu_args else None) and args[0].shape == found.shape:
            return args[0]  # an operation in place
        return mapped(lambda x: Elsewhere(x, self), found) if on_gpu else found


def _lstm_cell(from_input, from_state, c, *biases):
    gates = sum(biases, from_input + from_state)
    i, f, g, o = gates.chunk(4, -1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c, gates


class OnTheWrongDevice(AttentionWeights):
    """A method with the mistake that is looked for."""

    def explain(self, batch):
        """Scores times a tensor that is always on the CPU."""
        scores = super().explain(batch)
        scores.source = scores.source * torch.ones(scores.source.shape[-1])
        return scores


def compared(case: str, model: Any, lengths: list[tuple[int, int]], **settings: Any) -> dict[str, Any]:
    """How far scores on the GPU are from those on the CPU, and the waits; if there is an error, its text.

    Those of SmoothGrad, which are divided by the saliency of the source and can be large, relative to the largest one.
    """
    name, own = parse_method(case)
    model, settings = fitting(name, model), own | settings
    batch = random_batch(model, lengths)
    expected = make_method(model, name, **settings)(**batch)
    try:
        with PretendGPU() as gpu:
            there = {key: Elsewhere(x, gpu) for key, x in batch.items()}
            found = make_method(gpu.moved(model), name, **settings)(**there)
            pairs = [(getattr(found, x).cpu(), getattr(expected, x)) for x in ("source", "prefix")]
            largest = max(b.abs().max().item() for _, b in pairs) if name == "smoothgrad" else 1.0
            off = max((a - b).abs().max() / max(largest, 1.0) for a, b in pairs)
            return {"off": off.item(), "waits": gpu.waits, "device": str(found.source.device)}
    except Exception:
        return {"error": traceback.format_exc()}


def split(model: Any) -> str:
    """The error for a model whose decoder is on the GPU and whose encoder is not."""
    with PretendGPU() as gpu:
        model = copy.deepcopy(model)
        model.model.decoder = gpu.moved(model.model.decoder)
        try:
            make_method(model, "attention")
        except hni.InputError as error:
            return str(error)
    return ""


def end_to_end() -> dict[str, Any]:
    """How far results of translating, explaining and checking are from those on the CPU, and the links of both."""
    model, tokenizer = hni.load_demo("en-de")

    def run(model: Any) -> tuple[list[float], list[list[int]]]:
        with hni.explain_generation(model, tokenizer, method="attention") as explained:
            model.generate(**tokenizer(["A man sleeps."], return_tensors="pt").to(model.device), num_beams=2)
        pairs = [model, tokenizer, ["A man sleeps."], ["Ein Mann schläft."]]
        numbers = [*explained.results[0].source.flatten().tolist(), *hni.check(*pairs)[0].signals.values()]
        return numbers, sorted(map(list, hni.align(*pairs)[0]))

    expected, links = run(model)
    try:
        with PretendGPU() as gpu:
            found, moved_links = run(gpu.moved(model))
        off = max(abs(a - b) for a, b in zip(found, expected, strict=True))
        return {"off": off, "links": [links, moved_links]}
    except Exception:
        return {"error": traceback.format_exc()}


def main() -> None:
    """All methods with small and with larger work; other families; everything else."""
    _setup_privateuseone_for_python_backend("gpu", Backend())
    repeats = {"smoothgrad": "smoothgrad", "smoothed_attention": "smoothgrad", "integrated_gradients": "steps"}
    small, large = (
        tiny_model("marian", encoder_layers=layers, decoder_layers=layers, max_position_embeddings=64)
        for layers in (1, 3)
    )
    found: dict[str, Any] = {"small": {}, "large": {}, "families": {}}
    for name in CASES:
        few, many = ({repeats[name]: n} if name in repeats else {} for n in (2, 5))
        found["small"][name] = compared(name, small, [(4, 3), (2, 2)], **few)
        found["large"][name] = compared(name, large, [(7, 6), (3, 8)], **many)
    for family in FAMILIES + RECURRENT:
        model = tiny_model(family)
        for name in OF_FAMILIES:
            if METHODS[name].fits(model):
                found["families"][f"{family} {name}"] = compared(name, model, [(3, 2), (2, 2)])
    METHODS["wrong"] = OnTheWrongDevice
    found["wrong"] = compared("wrong", small, [(4, 3)])
    found["split"] = split(small)
    found["end to end"] = end_to_end()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
