"""What each family's decoder reads when it is to predict the labels."""

import torch
from transformers import MBartForConditionalGeneration, PreTrainedModel


def shifted_right(model: PreTrainedModel, labels: torch.Tensor) -> torch.Tensor:
    """The decoder input (start, y_1 .. y_{T-1}) of labels y_1 .. y_T.

    The start token is the configured one; mBART's is the sentence's last label (its EOS or language token).
    M2M100 shifts inside `forward` only: it has no `prepare_decoder_input_ids_from_labels`.

    Args:
        model: any family.
        labels: [B, T], padding -100.

    Returns:
        [B, T], padding `pad_token_id`.
    """
    rows = []
    for row in labels.tolist():
        real = [y for y in row if y != -100]
        start = real[-1] if isinstance(model, MBartForConditionalGeneration) else model.config.decoder_start_token_id
        rows.append([start] + [model.config.pad_token_id if y == -100 else y for y in row[:-1]])
    return torch.tensor(rows)
