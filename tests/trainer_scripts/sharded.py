"""`train_translation.py` with accelerate told to shard weights on CPUs as on GPUs; run by `test_configs.py`."""

from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType

from trainer_scripts import train_translation

before = AcceleratorState.__init__


def shard(self, *args, fsdp_plugin=None, **kwargs):
    """As always; then what it does itself where there are GPUs."""
    before(self, *args, fsdp_plugin=fsdp_plugin, **kwargs)
    if plugin := fsdp_plugin or getattr(self, "fsdp_plugin", None):
        self.distributed_type, self.fsdp_plugin = DistributedType.FSDP, plugin


if __name__ == "__main__":
    AcceleratorState.__init__ = shard
    train_translation.main()
