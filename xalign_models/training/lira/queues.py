"""First-in first-out histories, without gradients, that compensate for small batches."""

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from xalign_models.training.lira.ranks import CorrelationConfig, correlation_loss, exact


class CorrQueue:
    """The last ``max_len`` (prediction, gold score) pairs (eq. 30)."""

    def __init__(self, max_len: int) -> None:
        self._pairs: deque[tuple[float, float]] = deque(maxlen=max_len)

    def join(self, predictions: Tensor, gold: Tensor) -> tuple[Tensor, Tensor]:
        """Predictions and scores of the batch (n,) followed by the history, (n + m,) each, float32 at least."""
        predictions, gold = exact(predictions), exact(gold)
        history = predictions.new_tensor(list(self._pairs)).reshape(-1, 2)
        return torch.cat([predictions, history[:, 0]]), torch.cat([gold, history[:, 1].to(gold.dtype)])

    def push(self, predictions: Tensor, gold: Tensor) -> None:
        """Append a batch; the oldest pairs drop out."""
        self._pairs.extend(zip(predictions.detach().tolist(), gold.detach().tolist(), strict=True))

    def state_dict(self) -> dict[str, Any]:
        """Plain data, for a checkpoint."""
        return {"pairs": [list(pair) for pair in self._pairs]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of :meth:`state_dict`."""
        self._pairs = deque(((p, g) for p, g in state["pairs"]), maxlen=self._pairs.maxlen)


class CorrStep(NamedTuple):
    """The loss of a batch, and flags of degenerate batches."""

    loss: Tensor
    waiting: bool
    """There are fewer than ``n_min`` pairs, or all labels are equal: the loss is zero."""
    constant: bool
    """All predictions are equal; the loss still counts, because its gradient points along the labels."""


def correlation_step(queue: CorrQueue, predictions: Tensor, gold: Tensor, config: CorrelationConfig) -> CorrStep:
    """The loss of a batch, cosines and gold scores (n,) each, with the history, to which the batch is then added."""
    joined, labels = queue.join(predictions, gold)
    queue.push(predictions, gold)
    constant = bool((joined.detach() == joined.detach()[0]).all()) if len(joined) else True
    if len(joined) < config.n_min or bool((labels == labels[0]).all()):
        return CorrStep(exact(predictions).sum() * 0, True, constant)
    return CorrStep(correlation_loss(joined, labels, config), False, constant)


class RankedDocuments(NamedTuple):
    """The n documents that b queries rank, (b, n) each: the batch's documents first, then mined documents."""

    scores: Tensor
    relevance: Tensor
    mask: Tensor


class DocQueue:
    """The last ``max_len`` documents of each language, without duplicates."""

    def __init__(self, max_len: int) -> None:
        self.max_len = max_len
        self._by_language: dict[str, OrderedDict[str, Tensor]] = {}

    def push(self, ids: Sequence[str], languages: Sequence[str], vectors: Tensor) -> None:
        """Append documents with vectors (n, d); a newer copy replaces an older."""
        for name, language, vector in zip(ids, languages, exact(vectors.detach()).clone(), strict=True):
            queue = self._by_language.setdefault(language, OrderedDict())
            queue.pop(name, None)
            queue[name] = vector
            while len(queue) > self.max_len:
                queue.popitem(last=False)

    def mine(self, query: Tensor, language: str, excluded: set[str], most: int) -> Tensor:
        """The best-scoring documents (m, d), m <= ``most``, of a language for a query (d,), except excluded ids."""
        queue = self._by_language.get(language, OrderedDict[str, Tensor]())
        # vectors from a checkpoint are on the CPU, later ones on the model's device
        vectors = [vector.to(query.device) for name, vector in queue.items() if name not in excluded]
        if not vectors or not most:
            return exact(query).new_zeros(0, query.shape[-1])
        stacked = torch.stack(vectors)
        best = (stacked @ exact(query.detach())).topk(min(most, len(vectors))).indices
        return stacked[best]

    def state_dict(self) -> dict[str, Any]:
        """Tensors and names, for a checkpoint."""
        return {language: dict(queue) for language, queue in self._by_language.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Inverse of :meth:`state_dict`."""
        self._by_language = {language: OrderedDict(queue) for language, queue in state.items()}


def candidates(
    queries: Tensor,
    documents: Tensor,
    ids: Sequence[str],
    languages: Sequence[str],
    positives: Sequence[set[str]],
    queue: DocQueue,
    mined: int,
) -> RankedDocuments:
    """Each query's documents in the batch and the best-scoring queued documents of the same language.

    A query's negatives are in the language of its positive. A repeated document counts once.

    Args:
        queries: (b, d) unit vectors.
        documents: (b, d) unit vectors, one positive per query.
        ids: Ids of these documents.
        languages: Languages of these documents.
        positives: Ids of all relevant documents of each query, in the batch or not.
        queue: Documents of earlier batches.
        mined: Maximum number of queued documents per query.
    """
    queries, documents = exact(queries), exact(documents)
    device = queries.device
    with torch.autocast(device.type, enabled=False):
        in_batch = queries @ documents.T
        repeated = [name in ids[:i] for i, name in enumerate(ids)]
        relevant = torch.tensor([[name in right for name in ids] for right in positives], device=device)
        fits = torch.tensor([[language == wanted for language in languages] for wanted in languages], device=device)
        mask = (fits | relevant) & ~torch.tensor(repeated, device=device)
        mined_vectors = [
            queue.mine(query, language, right | set(ids), mined)
            for query, language, right in zip(queries, languages, positives, strict=True)
        ]
        padded = pad_sequence(mined_vectors, batch_first=True)
        counts = torch.tensor([len(vectors) for vectors in mined_vectors], device=device)
        real = torch.arange(padded.shape[1], device=device) < counts[:, None]
        in_queue = torch.einsum("bd,bnd->bn", queries, padded)
    return RankedDocuments(
        torch.cat([in_batch, in_queue], dim=1),
        torch.cat([relevant.to(in_batch.dtype), torch.zeros_like(in_queue)], dim=1),
        torch.cat([mask, real], dim=1),
    )
