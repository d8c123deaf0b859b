"""Closed-form initialisation of the connector: it maps the encoder's state of a word to the word's embedding."""

from collections.abc import Iterable, Iterator, Sequence

import torch
from sentence_transformers.util import batch_to_device
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from xalign_models.generation.journal import batched
from xalign_models.training.lusifer.module import Lusifer
from xalign_models.training.lusifer.parts import embeddings_of

TEXTS = 2048
"""Maximum number of texts to fit on."""
REACH = 3.0
"""Standard deviations of a state that pass the ReLU: nearly all states pass, so the fit is nearly linear."""
RIDGE = 1e-3
"""Added to the hidden units' second moments, as a share of their mean."""
MOST = 10.0
"""Maximum factor of the deviations, so that poorly explained ones stay small."""


@torch.no_grad()
def fit_connector(
    lusifer: Lusifer,
    tokenizer: PreTrainedTokenizerBase,
    ends: tuple[int, int],
    texts: Sequence[str],
    batch_size: int = 64,
    device: str = "cpu",
) -> float:
    r"""Set both layers of the connector by least squares, in place, without training.

    The inner layer passes the states on: :math:`W_1 = I`, :math:`b_1` is :data:`REACH` standard deviations. The outer
    layer is the least-squares solution of ``ReLU(x + b_1) W_2 + b_2 = e`` over the tokens of the texts: x is the
    encoder's state of a token, and e is the mean embedding of the language model's tokens for the same letters. A
    text's first token, which has no letters, is mapped to the language model's begin token, and other tokens without
    letters to its end token; without a target, their output would be arbitrary. The connector's token starts as the end
    token.

    Least squares shrinks to the mean: the fitted words would have only the share R^2 of the variance of the language
    model's words. A second fit therefore multiplies the deviations of the embeddings from their mean by about 1 / R, so
    that the fitted words vary as much as the language model's. The texts are in its language, and ``ends`` are the ids
    of its tokenizer's begin and end tokens. ``device`` encodes the texts; the model itself is not moved.

    Returns:
        R^2 of the first fit, the explained share of the variance of the word embeddings.
    """
    home = lusifer.llm.device
    lusifer.encoder.eval().to(device)
    pairs = list(_pairs(lusifer, tokenizer, ends, texts[:TEXTS], batch_size))
    lusifer.encoder.to(home)
    states, embeddings = (torch.cat(side).double() for side in list(zip(*pairs, strict=True))[:2])
    words = torch.cat([word for _, _, word in pairs])
    shift = REACH * states.std(dim=0) - states.mean(dim=0)
    hidden = torch.relu(states + shift)
    mean, targets = embeddings[words].mean(dim=0), embeddings.clone()
    weight, bias = _least_squares(hidden, targets)
    fitted, deviations = (hidden @ weight + bias)[words] - mean, targets[words] - mean
    explained = float(1 - (deviations - fitted).square().sum() / deviations.square().sum())
    targets[words] = mean + deviations * min(MOST, float(deviations.norm() / fitted.norm()))
    weight, bias = _least_squares(hidden, targets)
    connector = lusifer.connector
    connector.inner.weight.copy_(torch.eye(len(weight)))
    connector.inner.bias.copy_(shift)
    connector.outer.weight.copy_(weight.T)
    connector.outer.bias.copy_(bias)
    connector.token.copy_(embeddings_of(lusifer.llm, [ends[1]])[0])
    return explained


def _least_squares(hidden: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """The weight (d_e, d_t) and the bias (d_t,) from hidden units (n, d_e) to targets (n, d_t)."""
    mean_in, mean_out = hidden.mean(dim=0), targets.mean(dim=0)
    centred = hidden - mean_in
    moments = centred.T @ centred
    moments += RIDGE * moments.diagonal().mean() * torch.eye(len(moments), dtype=moments.dtype)
    weight = torch.linalg.solve(moments, centred.T @ (targets - mean_out))
    return weight, mean_out - mean_in @ weight


def _pairs(
    lusifer: Lusifer, tokenizer: PreTrainedTokenizerBase, ends: tuple[int, int], texts: Sequence[str], batch_size: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """States (n, d_e) and embeddings (n, d_t) of the tokens of each text, and a mask of word tokens (n,)."""
    for batch in map(list, batched(texts, batch_size)):
        features = batch_to_device(lusifer.preprocess(batch), lusifer.encoder.model.device)
        states = lusifer.encoder(dict(features))["token_embeddings"].float().cpu()
        options = {"return_offsets_mapping": True, "truncation": True, "max_length": features["input_ids"].shape[1]}
        read = lusifer.tokenizer(batch, **options)["offset_mapping"]
        written = tokenizer(batch, add_special_tokens=False, return_offsets_mapping=True)
        for row, places in enumerate(read):
            written_of = dict(_overlaps(places, written["offset_mapping"][row]))
            letters = torch.tensor([start < end for start, end in places])
            words = torch.tensor([position in written_of for position in range(len(places))])
            used = (words | ~letters).nonzero()[:, 0].tolist()
            ids = written["input_ids"][row]
            tokens = [
                [ids[i] for i in written_of[place]] if place in written_of else [ends[place > 0]] for place in used
            ]
            lengths = torch.tensor([len(own) for own in tokens])
            pieces = embeddings_of(lusifer.llm, [token for own in tokens for token in own]).float().cpu()
            yield states[row, used], torch.segment_reduce(pieces, "mean", lengths=lengths), words[used]


def _overlaps(read: Iterable[tuple[int, int]], written: Sequence[tuple[int, int]]) -> Iterator[tuple[int, list[int]]]:
    """Each token read, with the written tokens that share letters with it; tokens without such partners are skipped."""
    for position, (start, end) in enumerate(read):
        overlapping = [i for i, (first, last) in enumerate(written) if max(start, first) < min(end, last)]
        if overlapping:
            yield position, overlapping
