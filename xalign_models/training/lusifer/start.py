"""A start of the connector in closed form: the encoder's state of a word, onto the language model's embedding of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from xalign_models.training.instruments import placed
from xalign_models.training.lusifer.module import Lusifer

TEXTS = 2048
"""Most texts whose words are fitted."""
REACH = 3.0
"""Deviations of a state that the ReLU lets through: nearly all of it, so that the fit is nearly linear."""
RIDGE = 1e-3
"""Added to the hidden units' second moments, as a share of their mean."""
MOST = 10.0
"""The most by which deviations are multiplied: of what the states hardly say, little is made."""


@torch.no_grad()
def fit_connector(
    lusifer: Lusifer,
    tokenizer: PreTrainedTokenizerBase,
    ends: tuple[int, int],
    texts: Sequence[str],
    batch_size: int = 64,
) -> float:
    r"""Set both layers of the connector, in place, without a step of training.

    The inner layer passes the states on: :math:`W_1 = I`, :math:`b_1` is :data:`REACH` deviations. The outer layer is
    the least-squares solution of ``ReLU(x + b_1) W_2 + b_2 = e``, over the tokens of the texts: x is the encoder's
    state of a token and e the mean of the language model's embeddings of its own tokens for the same letters. A text's
    first token, which has no letters, goes to the language model's begin token, and the others without letters to its
    end token: left out of the fit, they would come out as anything. The connector's own token begins as the end token.

    Least squares draws what it cannot explain to the mean: the fitted words would have the share R^2 of the variance of
    the language model's words, which then all sound alike to it. A second fit is therefore to embeddings whose
    deviations from their mean are multiplied by about 1 / R: its words vary as much as the language model's own.

    Args:
        lusifer: Its encoder and its language model stay as they are.
        tokenizer: The language model's.
        ends: Ids of its begin and its end token.
        texts: In the language model's language.
        batch_size: Texts that are encoded together.

    Returns:
        R^2 of the fit: the share of the variance of the words' embeddings that it explains.
    """
    lusifer.encoder.eval()
    pairs = list(_pairs(lusifer, tokenizer, ends, texts[:TEXTS], batch_size))
    states, embeddings = (torch.cat(side).double() for side in list(zip(*pairs, strict=True))[:2])
    words = torch.cat([word for _, _, word in pairs])
    shift = REACH * states.std(dim=0) - states.mean(dim=0)
    hidden = torch.relu(states + shift)
    mean, wanted = embeddings[words].mean(dim=0), embeddings.clone()
    weight, bias = _least_squares(hidden, wanted)
    fitted, there = (hidden @ weight + bias)[words] - mean, wanted[words] - mean
    explained = float(1 - (there - fitted).square().sum() / there.square().sum())
    wanted[words] = mean + there * min(MOST, float(there.norm() / fitted.norm()))
    weight, bias = _least_squares(hidden, wanted)
    connector = lusifer.connector
    connector.inner.weight.copy_(torch.eye(len(weight)))
    connector.inner.bias.copy_(shift)
    connector.outer.weight.copy_(weight.T)
    connector.outer.bias.copy_(bias)
    connector.token.copy_(lusifer.llm.get_input_embeddings().weight[ends[1]])
    return explained


def _least_squares(hidden: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """The weight (d_e, d_t) and the bias (d_t,) from hidden units (n, d_e) to what is wanted (n, d_t)."""
    mean_in, mean_out = hidden.mean(dim=0), wanted.mean(dim=0)
    centred = hidden - mean_in
    moments = centred.T @ centred
    moments += RIDGE * moments.diagonal().mean() * torch.eye(len(moments), dtype=moments.dtype)
    weight = torch.linalg.solve(moments, centred.T @ (wanted - mean_out))
    return weight, mean_out - mean_in @ weight


def _pairs(
    lusifer: Lusifer, tokenizer: PreTrainedTokenizerBase, ends: tuple[int, int], texts: Sequence[str], batch_size: int
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The states (n, d_e) and the embeddings (n, d_t) of the tokens of each text, and which are of words (n,)."""
    table = lusifer.llm.get_input_embeddings().weight
    for start in range(0, len(texts), batch_size):
        batch = list(texts[start : start + batch_size])
        features = lusifer.preprocess(batch)
        states = lusifer.encoder(placed(features, table.device))["token_embeddings"].float().cpu()
        options = {"return_offsets_mapping": True, "truncation": True, "max_length": features["input_ids"].shape[1]}
        read = lusifer.tokenizer(batch, **options)["offset_mapping"]
        written = tokenizer(batch, add_special_tokens=False, return_offsets_mapping=True)
        for row, places in enumerate(read):
            own = dict(_overlaps(places, written["offset_mapping"][row]))
            letters = torch.tensor([start < end for start, end in places])
            words = torch.tensor([position in own for position in range(len(places))])
            used = (words | ~letters).nonzero()[:, 0].tolist()
            ids = written["input_ids"][row]
            tokens = [[ids[i] for i in own[place]] if place in own else [ends[place > 0]] for place in used]
            embeddings = torch.stack([table[own_tokens].float().mean(dim=0).cpu() for own_tokens in tokens])
            yield states[row, used], embeddings, words[used]


def _overlaps(read: Iterable[tuple[int, int]], written: Sequence[tuple[int, int]]) -> Iterator[tuple[int, list[int]]]:
    """For each token that was read, by its letters' places, those written of the same letters, if there are any."""
    for position, (start, end) in enumerate(read):
        own = [i for i, (first, last) in enumerate(written) if max(start, first) < min(end, last)]
        if own:
            yield position, own
