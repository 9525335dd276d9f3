"""Configuration of the bag-of-words proxy."""

from transformers import PreTrainedConfig


class BagOfWordsConfig(PreTrainedConfig):
    """Proxy of Snell et al. 2021, section 2.3.

    Args:
        vocab_size: size of the input vocabulary.
        output_size: number of output words or classes; None for `vocab_size`.
        embedding_size: d, 256 in appendix A.10.

    >>> BagOfWordsConfig(vocab_size=20).output_size
    20
    """

    model_type = "bag_of_words_proxy"

    vocab_size: int = 8000
    output_size: int | None = None
    embedding_size: int = 256
    pad_token_id: int | None = 1

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        self.output_size = self.vocab_size if self.output_size is None else self.output_size
