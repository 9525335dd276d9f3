"""Translations as ids: what attribution explains."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Translation:
    """One sentence pair as ids, without padding.

    Attributes:
        source_ids: source tokens with EOS and language tokens.
        target_ids: target tokens without the start token, with EOS: the labels.
        start_id: what the decoder read first, None for the family's own shift of the labels.
    """

    source_ids: list[int]
    target_ids: list[int]
    start_id: int | None = None

    @property
    def size(self) -> int:
        """Length of the longer side, to sort by."""
        return max(len(self.source_ids), len(self.target_ids))


def collate(
    translations: Sequence[Translation], pad_id: int | None, device: torch.device | str = "cpu"
) -> dict[str, Tensor]:
    """Pad translations on the right: input_ids and attention_mask [B, S], labels [B, T] (padding -100).

    Where the start tokens are known, decoder_input_ids [B, T] too. A model without padding token (`pad_id` None) is
    padded with 0: nothing of it is read.

    >>> collate([Translation([5, 0], [7, 8, 0]), Translation([0], [0])], pad_id=9)["labels"]
    tensor([[   7,    8,    0],
            [   0, -100, -100]])
    """
    pad_id = pad_id or 0

    def pad(rows: list[list[int]], value: int) -> Tensor:
        width = max(map(len, rows))
        return torch.tensor([row + [value] * (width - len(row)) for row in rows], device=device)

    batch = {
        "input_ids": pad([t.source_ids for t in translations], pad_id),
        "attention_mask": pad([[1] * len(t.source_ids) for t in translations], 0),
        "labels": pad([t.target_ids for t in translations], -100),
    }
    if all(t.start_id is not None for t in translations):
        batch["decoder_input_ids"] = pad([[t.start_id or 0, *t.target_ids[:-1]] for t in translations], pad_id)
    return batch
