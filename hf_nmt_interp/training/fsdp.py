"""Weights that are sharded over processes (FSDP 2)."""

from collections import defaultdict
from typing import Any


def make_shardable(model: Any, plugin: Any) -> None:
    """Do with a translator what accelerate has no eye for, before it shards the model.

    A weight that several modules have must be sharded with all of them in one group. accelerate does so for the input
    and the output embedding; the encoder and the decoder have the same weight too. It leaves alone what is sharded.
    And what is never saved, Marian's sinusoidal positions, must not wait for gradients: an optimizer has no state of
    it that could be read again. accelerate's plugin tells how to shard.
    """
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

    owners: dict[Any, list[Any]] = defaultdict(list)
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            owners[parameter].append(module)
    for modules in owners.values():
        if len(modules) > 1 and not any(isinstance(module, FSDPModule) for module in modules):
            fully_shard(
                modules,
                reshard_after_forward=False,  # the first layer needs it, and the last
                offload_policy=plugin.cpu_offload,
                mp_policy=plugin.mixed_precision_policy or MixedPrecisionPolicy(),
            )
    for name, parameter in model.named_parameters():
        if name in (model._keys_to_ignore_on_save or ()):
            parameter.requires_grad_(False)
