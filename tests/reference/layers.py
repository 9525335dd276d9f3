"""Contributions layer by layer, slow and literal: ALTI+, attention rollout, norms of attention, value zeroing."""

import torch
from torch import Tensor
from transformers import PreTrainedModel

from tests.reference.forward import Network, Pass, Tape, Value, describe, run, run_sublayers
from tests.reference.shift import shifted_right


def forward(model: PreTrainedModel, input_ids: Tensor, labels: Tensor) -> tuple[Network, Pass]:
    """The forward pass of one unpadded sentence pair, ids [S] and [T]."""
    network = describe(model)
    read = shifted_right(model, labels[None])[0]
    return network, run(network, network.encoder.embedding[input_ids], network.decoder.embedding[read])


def as_scores(source: Tensor, decoder: Tensor) -> dict[str, Tensor]:
    """Source [T, S], prefix [T, T] and start [T] from contributions of the decoder's inputs [T, T]."""
    prefix = torch.zeros_like(decoder)
    prefix[:, :-1] = decoder[:, 1:]
    return {"source": source, "prefix": prefix, "start": decoder[:, 0]}


def roll_out(encoder: list[Tensor], decoder: list[tuple[Tensor, Tensor, Tensor]]) -> dict[str, Tensor]:
    """Encoder matrices [S, S] and, of each decoder layer, C [T, T], c_src [T, S] and c_r [T], multiplied up."""
    S, T = decoder[0][1].shape[1], len(decoder[0][0])
    read = torch.eye(S, dtype=torch.float64)
    for matrix in encoder:
        read = matrix @ read
    R_src, R_tgt = torch.zeros(T, S, dtype=torch.float64), torch.eye(T, dtype=torch.float64)
    for C, c_src, c_r in decoder:
        R_src, R_tgt = c_src @ read + torch.diag(c_r) @ C @ R_src, torch.diag(c_r) @ C @ R_tgt
    return as_scores(R_src, R_tgt)


def by_kind(done: Pass) -> dict[str, list[int]]:
    """Where the attentions of each kind stand on the tape, layer by layer."""
    places: dict[str, list[int]] = {"encoder": [], "decoder": [], "cross": []}
    for number, operation in enumerate(done.tape.operations):
        if operation.kind == "attention":
            places[operation.constants["name"]].append(number)
    return places


# --------------------------------------------------------------------------------------------------------------- ALTI+
def _vector(done: Pass, place: int, i: int, j: int) -> Tensor:
    """sum_h a^h_ij W_O^h W_V^h x_j [d] of the attention at a place of the tape."""
    value, attention, output = done.tape.operations[place - 1 : place + 2]
    weights = attention.constants["weights"]
    by_head = (value.constants["weight"] @ value.inputs[0].x[j]).chunk(len(weights))
    out = output.constants["weight"].chunk(len(weights), dim=1)
    return sum(w[i, j] * (out[h] @ by_head[h]) for h, w in enumerate(weights))


def alti_block(network: Network, done: Pass, place: int) -> tuple[Tensor, Tensor]:
    """c_ij [P, S] of the tokens an attention reads, c_r [P] of its residual stream (in c_ii of a self-attention)."""
    attention, _, added = done.tape.operations[place : place + 3]
    is_cross = attention.constants["name"] == "cross"
    stream, post = added.inputs[0].x, None if network.encoder.pre_norm else done.tape.operations[place + 3]
    P, S = attention.constants["weights"][0].shape
    to_keys, to_stream = torch.zeros(P, S, dtype=torch.float64), torch.zeros(P, dtype=torch.float64)
    for i in range(P):

        def through_norm(x: Tensor, i: int = i) -> Tensor:
            return x if post is None else post.constants["weight"] * (x - x.mean()) * post.constants["s"][i]

        y = (added if post is None else post).output.x[i]

        def closer(part: Tensor, y: Tensor = y) -> float:
            return max(0.0, float(y.abs().sum() - (y - part).abs().sum()))

        for j in range(S):
            residual = stream[i] if i == j and not is_cross else 0
            to_keys[i, j] = closer(through_norm(_vector(done, place, i, j) + residual))
        if is_cross:
            to_stream[i] = closer(through_norm(stream[i]))
    total = to_keys.sum(1) + to_stream
    return to_keys / total[:, None], to_stream / total


def alti(model: PreTrainedModel, input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """ALTI+ of one unpadded sentence pair."""
    network, done = forward(model, input_ids, labels)
    places = by_kind(done)
    encoder = [alti_block(network, done, place)[0] for place in places["encoder"]]
    both = zip(places["decoder"], places["cross"], strict=True)
    decoder = [(alti_block(network, done, own)[0], *alti_block(network, done, cross)) for own, cross in both]
    return roll_out(encoder, decoder)


# ------------------------------------------------------------------------------------------------- attention and norms
def attention_rollout(model: PreTrainedModel, input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """0.5 A + 0.5 I of each layer (Abnar and Zuidema 2020), A the mean over heads, I the stream in cross-attention."""
    _, done = forward(model, input_ids, labels)
    mean = {
        kind: [torch.stack(done.tape.operations[p].constants["weights"]).mean(0) for p in places]
        for kind, places in by_kind(done).items()
    }
    half = torch.full((len(labels),), 0.5, dtype=torch.float64)
    decoder = [
        (0.5 * own + 0.5 * torch.eye(len(own)), 0.5 * cross, half)
        for own, cross in zip(mean["decoder"], mean["cross"], strict=True)
    ]
    return roll_out([0.5 * a + 0.5 * torch.eye(len(a)) for a in mean["encoder"]], decoder)


def norm_attention(
    model: PreTrainedModel, input_ids: Tensor, labels: Tensor, layer: int, head: int | None = None
) -> dict[str, Tensor]:
    """|sum_h a^h_ts W_O^h W_V^h x_s|_2 of one layer (Kobayashi et al. 2020), of all heads or one; rows sum to 1."""
    _, done = forward(model, input_ids, labels)
    found = {}
    for kind in ("cross", "decoder"):
        place = by_kind(done)[kind][layer]
        weights = done.tape.operations[place].constants["weights"]
        if head is not None:
            for h, w in enumerate(weights):
                w *= h == head
        P, S = weights[0].shape
        norms = torch.stack([torch.stack([_vector(done, place, i, j).norm() for j in range(S)]) for i in range(P)])
        found[kind] = norms / norms.sum(1, keepdim=True)
    return as_scores(found["cross"], found["decoder"])


# ------------------------------------------------------------------------------------------------------- value zeroing
def value_zeroing(model: PreTrainedModel, input_ids: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """1 - cos of a layer's output with and without a token's value vector (Mohebbi et al. 2023); rows sum to 1.

    In the decoder a row has the tokens of self-attention and of cross-attention together.
    """
    network, done = forward(model, input_ids, labels)
    memory = done.tape.operations[by_kind(done)["cross"][0] - 1].inputs[0]
    found: dict[str, list] = {"encoder": [], "decoder": []}
    for name, stack, size in (("encoder", network.encoder, 2), ("decoder", network.decoder, 3)):
        for number, place in enumerate(by_kind(done)[name]):
            stream = done.tape.operations[place + 2].inputs[0].x
            some = stack.sublayers[number * size : (number + 1) * size]

            def output(zeroed, some=some, stream=stream, stack=stack, name=name):
                read = memory if name == "decoder" else None
                return run_sublayers(Tape(zeroed=zeroed), stack, some, Value(stream), read, name).x

            def distances(kind, length, output=output):
                clean = output(None)
                changed = [output((kind, j)) for j in range(length)]
                return torch.stack([1 - torch.cosine_similarity(clean, other, dim=-1) for other in changed], 1)

            own = distances(name, len(stream))
            if name == "encoder":
                found[name].append(own / own.sum(1, keepdim=True))
            else:
                cross = distances("cross", len(input_ids))
                total = own.sum(1, keepdim=True) + cross.sum(1, keepdim=True)
                found[name].append((own / total, cross / total, torch.ones(len(labels), dtype=torch.float64)))
    return roll_out(found["encoder"], found["decoder"])
