"""Weights that are sharded over processes (FSDP 2)."""

from collections import defaultdict
from typing import Any


def make_shardable(model: Any, plugin: Any) -> None:
    """Prepare a translator for sharding where accelerate alone is not enough.

    A weight that several modules share must be sharded with all of them in one group. accelerate does so for the input
    and output embeddings, but the encoder and the decoder share that weight too. Weights that are already sharded are
    not changed. Weights that are never saved, Marian's sinusoidal positions, must not require gradients: the optimizer
    has no state for them that could be restored. accelerate's plugin determines how to shard.
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
                reshard_after_forward=False,  # the first and the last layer need it
                offload_policy=plugin.cpu_offload,
                mp_policy=plugin.mixed_precision_policy or MixedPrecisionPolicy(),
            )
    for name, parameter in model.named_parameters():
        if name in (model._keys_to_ignore_on_save or ()):
            parameter.requires_grad_(False)
