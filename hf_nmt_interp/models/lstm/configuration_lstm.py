"""Configurations of the LSTM translator and classifier; the sizes are those of Snell et al. 2021, appendix A.8."""

from transformers import PreTrainedConfig

MODES = ("learned", "uniform", "frozen")


def check(config: PreTrainedConfig, field: str, known: tuple[str, ...]) -> None:
    """Raise for an invalid value of a field."""
    if (value := getattr(config, field)) not in known:
        raise ValueError(f"{field}={value!r} is not one of {', '.join(known)}")


class LuongSeq2SeqConfig(PreTrainedConfig):
    """LSTM encoder and decoder with global attention (Luong et al. 2015), as in Snell et al. 2021.

    Args:
        vocab_size: size of the vocabulary of both languages.
        embedding_size: size of token embeddings.
        hidden_size: size of all states; each direction of a bidirectional encoder has this size, and a linear layer
            maps the two to one state.
        encoder_layers: number of stacked LSTMs.
        decoder_layers: number of stacked LSTMs.
        bidirectional: whether the encoder reads in both directions.
        attention: "general" (a = s' W h) or "dot" (a = s' h).
        attention_heads: number K of matrices W, whose contexts are summed (section 5.2).
        attention_mode: "learned"; "uniform" (each state has weight 1 / L); "frozen" (W keeps its initial value).
        output: "hidden" (a hidden ReLU layer on [c, s]) or "linear" (eq. 31, on c + s).
        input_feeding: the first decoder layer also reads the attentional state of the previous step, the input of the
            output projection (0 at the first step); training then runs step by step.
        dropout: dropout between layers.
        init_range: weights are drawn from [-init_range, init_range], 0.1 in Luong et al. 2015.
        tie_word_embeddings: use one embedding matrix for source and target.
        tie_output: also use it as the output projection; needs `embedding_size == hidden_size`.

    >>> LuongSeq2SeqConfig(vocab_size=1000, attention_mode="uniform").attention
    'general'
    """

    model_type = "luong_seq2seq"
    keys_to_ignore_at_inference = ["past_key_values"]  # noqa: RUF012
    attribute_map = {"num_hidden_layers": "decoder_layers", "num_attention_heads": "attention_heads"}  # noqa: RUF012

    vocab_size: int = 8000
    embedding_size: int = 256
    hidden_size: int = 256
    encoder_layers: int = 2
    decoder_layers: int = 2
    bidirectional: bool = True
    attention: str = "general"
    attention_heads: int = 1
    attention_mode: str = "learned"
    output: str = "hidden"
    input_feeding: bool = False
    dropout: float = 0.5
    init_range: float = 0.1
    tie_word_embeddings: bool = True
    tie_output: bool = False
    use_cache: bool = True
    is_encoder_decoder: bool = True
    pad_token_id: int | None = 1
    eos_token_id: int | list[int] | None = 2
    decoder_start_token_id: int | None = 2

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        check(self, "attention", ("general", "dot"))
        check(self, "attention_mode", MODES)
        check(self, "output", ("hidden", "linear"))
        if self.attention == "dot" and self.attention_heads > 1:
            raise ValueError(f"attention_heads={self.attention_heads}: all dot heads are equal; use general")
        if self.tie_output and not (self.tie_word_embeddings and self.embedding_size == self.hidden_size):
            raise ValueError("tie_output=True needs tie_word_embeddings=True and embedding_size == hidden_size")


class LSTMAttentionConfig(PreTrainedConfig):
    """LSTM with attention for classification (Wiegreffe and Pinter 2019; Snell et al. 2021, eq. 7, 8).

    Args:
        vocab_size: size of the vocabulary.
        embedding_size: size of token embeddings.
        hidden_size: size of each direction, and of the attention's hidden layer.
        encoder_layers: number of stacked LSTMs.
        bidirectional: whether the encoder reads in both directions, with concatenated states.
        attention_mode: "learned"; "uniform" (each state has weight 1 / L); "frozen" (it keeps its initial values).
        dropout: dropout between layers.
        init_range: weights are drawn from [-init_range, init_range].

    >>> LSTMAttentionConfig(vocab_size=1000, num_labels=3).num_labels
    3
    """

    model_type = "lstm_attention"

    vocab_size: int = 8000
    embedding_size: int = 300
    hidden_size: int = 256
    encoder_layers: int = 1
    bidirectional: bool = True
    attention_mode: str = "learned"
    dropout: float = 0.0
    init_range: float = 0.1
    pad_token_id: int | None = 0

    def __post_init__(self, **kwargs):
        super().__post_init__(**kwargs)
        check(self, "attention_mode", MODES)
        if (self.num_labels or 0) < 2:
            raise ValueError(f"num_labels={self.num_labels}: a classifier needs at least two")
