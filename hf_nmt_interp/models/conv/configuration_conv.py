"""Configuration of the convolutional translator; the sizes are those of fairseq's fconv_iwslt_de_en."""

from transformers import PreTrainedConfig


class ConvSeq2SeqConfig(PreTrainedConfig):
    """Convolutional sequence to sequence model (Gehring et al. 2017).

    Args:
        vocab_size: size of the vocabulary of both languages.
        embedding_size: size of token embeddings.
        hidden_size: size of the states between convolutions.
        encoder_layers: number of convolutions.
        decoder_layers: number of convolutions, each with its own attention.
        kernel_size: tokens that a convolution reads; must be odd.
        max_position_embeddings: maximum tokens of a sentence.
        dropout: dropout on embeddings, on the input of each convolution and before the output projection.
        tie_word_embeddings: use one embedding matrix for source and target.
        tie_output: also use it as the output projection.

    >>> ConvSeq2SeqConfig(vocab_size=1000, kernel_size=5).num_hidden_layers
    3
    """

    model_type = "conv_seq2seq"
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012
    attribute_map = {"num_hidden_layers": "decoder_layers"}  # noqa: RUF012

    vocab_size: int = 8000
    embedding_size: int = 256
    hidden_size: int = 256
    encoder_layers: int = 4
    decoder_layers: int = 3
    kernel_size: int = 3
    max_position_embeddings: int = 256
    dropout: float = 0.2
    tie_word_embeddings: bool = True
    tie_output: bool = False
    use_cache: bool = True
    is_encoder_decoder: bool = True
    pad_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 2

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        if self.kernel_size % 2 == 0:
            raise ValueError(
                f"kernel_size={self.kernel_size} must be odd, for the same number of tokens before and after"
            )
        if self.tie_output and not self.tie_word_embeddings:
            raise ValueError("tie_output=True needs tie_word_embeddings=True")
