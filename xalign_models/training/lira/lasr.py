"""Stage 2: the fusion learns similarity and retrieval; histories of earlier batches compensate for small ones."""

import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from scipy.stats import pearsonr, spearmanr
from sentence_transformers.util import batch_to_device
from torch import Tensor

from xalign_models.generation.journal import batched
from xalign_models.languages import TaggedText
from xalign_models.progress import live
from xalign_models.training.lira.config import LasrConfig
from xalign_models.training.lira.data import MEASURED, Rated, Search, Split, document_id
from xalign_models.training.lira.module import LiRA, grow, part_of, unpack
from xalign_models.training.lira.ndcg import retrieval_loss
from xalign_models.training.lira.queues import CorrQueue, DocQueue, candidates, correlation_step
from xalign_models.training.lira.ranks import similarity
from xalign_models.training.objective import Objective, TrainingOutcome
from xalign_models.training.processes import gathered, process_count, sharded_like, shared, whole

RECENT, QUANTILE, ENOUGH = 1024, 0.95, 32
"""The threshold of near negatives: a quantile of the scores of recent positives, once there are enough of them."""
DECAY = 0.999
"""Maximum decay of the moving average; early steps use ``(1 + t) / (10 + t)`` to forget the initial weights."""


class Streams:
    """Both streams of every text, computed once after stage 1, because stage 2 does not change them."""

    def __init__(self, module: LiRA, texts: Iterable[TaggedText], batch_size: int = 32) -> None:
        distinct = sorted(dict.fromkeys(texts), key=lambda text: len(text.text))
        self._row = {text: row for row, text in enumerate(distinct)}
        network = module.network.eval()

        def read(start: int) -> tuple[Tensor, ...]:
            batch = [text._asdict() for text in distinct[start : start + batch_size]]
            features = batch_to_device(module.preprocess(batch), network.device)
            streams = network.streams(*unpack(features), part_of(features, "own"))
            bar.update(len(batch) * process_count())
            return tuple(stream.half().cpu() for stream in streams)

        with torch.no_grad(), live(total=len(distinct), desc="streams") as bar:
            pieces = shared(range(0, len(distinct), batch_size), read)
        self._both = [torch.cat(side) for side in zip(*pieces, strict=True)]

    def __call__(self, texts: Sequence[TaggedText], device: torch.device) -> tuple[Tensor, ...]:
        """(n, S, d) each, and (n, d_m) with a residual."""
        rows = [self._row[text] for text in texts]
        return tuple(side[rows].float().to(device) for side in self._both)


class Lasr(Objective):
    """The objective of stage 2; a row is a pair's position, or the number of pairs plus a query's position."""

    def __init__(self, module: LiRA, ranking: Split, retrieval: Split, config: LasrConfig) -> None:
        super().__init__()
        self.module, self.config = module, config
        self.ranking, self.retrieval = ranking, retrieval
        self._texts = {document_id(search.document): search.document for search in retrieval.train}
        self.positives: dict[TaggedText, set[str]] = {}
        for search in (*retrieval.train, *retrieval.held_out):
            self.positives.setdefault(search.query, set()).add(document_id(search.document))
        self.measured_ranking: list[Rated] = ranking.held_out[:MEASURED]
        step = max(1, len(retrieval.held_out) // MEASURED)
        self.measured_retrieval: list[Search] = retrieval.held_out[::step]
        rows = (*ranking.train, *self.measured_ranking, *retrieval.train, *self.measured_retrieval)
        self.streams = Streams(module, [text for row in rows for text in row[:2]])
        network = module.network
        if config.rank:
            grow(network, rank=config.rank, alpha=config.alpha, seed=config.seed)
        lora = {name: weight for name, weight in network.named_parameters() if config.rank and "lora_" in name}
        network.tuned |= lora.keys()
        self.parts = {"lora": list(lora.values()), "fusion": list(network.fusion.parameters())}
        if module.design.residual:
            self.parts["gate"] = [network.gate]
        for weights in self.parts.values():
            for weight in weights:
                weight.requires_grad_(True)
        self.average: list[Tensor] = []
        self.pairs, self.documents = CorrQueue(config.correlation.max_len), DocQueue(config.loss.max_len)
        self.recent: deque[float] = deque(maxlen=RECENT)
        self._measured: dict[str, Any] = {}
        self._steps = 0

    def collate(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Only the row numbers, because the streams are computed in advance."""
        return {"rows": torch.tensor([row["row"] for row in rows])}

    def embed(self, texts: Sequence[TaggedText]) -> Tensor:
        """(n, d_m) of unit length."""
        network = self.module.network
        return network.fuse(*self.streams(texts, network.device))

    def loss(self, features: dict[str, Any]) -> Tensor:
        """The sum of the losses of a batch of pairs (eq. 34) and of a batch of queries (eq. 44)."""
        if self.config.refresh and self._steps and self._steps % self.config.refresh == 0:
            self._refresh()  # here, because a sharded model gathers its weights only in its forward pass
        rows, count = features["rows"], len(self.ranking.train)
        pairs, queries = rows[rows < count], rows[rows >= count] - count
        self._measured = {}
        loss = torch.zeros((), device=self.module.network.device)
        if len(pairs):
            loss = loss + self.config.ranking_weight * self._rank(pairs)
        if len(queries):
            loss = loss + self._search(queries)
        return loss

    def step(self) -> dict[str, Any]:
        """Average the weights, and return the parts of the loss."""
        if self.config.average:
            self.average = averaged(self.average, map(whole, self._weights()), self._steps)
        self._steps += 1
        return {name: float(value) for name, value in self._measured.items()}

    def _both(self, split: Split, rows: Tensor) -> tuple[list[Any], Tensor, Tensor]:
        """The rows of all processes and the vectors of both texts of each row; a process encodes only its own rows."""
        rows_here = [split.train[i] for i in rows.tolist()]
        first, second = self.embed([row[0] for row in rows_here] + [row[1] for row in rows_here]).chunk(2)
        return [split.train[i] for i in gathered(rows).tolist()], gathered(first), gathered(second)

    def _rank(self, rows: Tensor) -> Tensor:
        batch, first, second = self._both(self.ranking, rows)
        predictions = similarity(first, second)
        gold = torch.tensor([pair.score for pair in batch], device=first.device)
        step = correlation_step(self.pairs, predictions, gold, self.config.correlation)
        self._measured |= {"ranking_loss": step.loss.detach(), "waiting": step.waiting, "constant": step.constant}
        return step.loss

    def _search(self, rows: Tensor) -> Tensor:
        batch, queries, documents = self._both(self.retrieval, rows)
        ids, languages = [document_id(search.document) for search in batch], [search.document.lang for search in batch]
        positives, mined = [self.positives[search.query] for search in batch], self.config.loss.mined
        ranked = candidates(queries, documents, ids, languages, positives, self.documents, mined)
        terms = retrieval_loss(*ranked, self.config.loss, self._threshold())
        self.documents.push(ids, languages, documents)
        self.recent.extend(similarity(queries, documents).detach().tolist())
        self._measured |= {
            "retrieval_loss": terms.loss.detach(),
            "ndcg_loss": terms.ndcg,
            "hinge": terms.hinge,
            "moments": terms.moments,
            "near_negatives": terms.near,
        }
        return terms.loss

    def _threshold(self) -> float:
        """Minimum score of a near negative; infinite until there are enough positives."""
        if len(self.recent) < ENOUGH:
            return float("inf")
        return float(torch.tensor(list(self.recent)).quantile(QUANTILE))

    @torch.no_grad()
    def _refresh(self) -> None:
        """Update the vectors of the queued documents and keep their order."""
        for language, queue in self.documents.state_dict().items():
            for batch in batched(queue, self.config.retrieval_batch):
                self.documents.push(batch, [language] * len(batch), self.embed([self._texts[name] for name in batch]))

    @torch.no_grad()
    def measure(self) -> dict[str, Any]:
        """Pearson and Spearman on held-out pairs and top-1 accuracy on held-out queries, with the averaged weights."""
        self.module.network.eval()
        measured: dict[str, Any] = {}
        with self._averages():
            if len({pair.score for pair in self.measured_ranking}) > 1:
                first, second, gold = zip(*self.measured_ranking, strict=True)
                predicted = similarity(self._all(first), self._all(second)).numpy()
                measured["pearson"] = float(pearsonr(predicted, gold).statistic)
                measured["spearman"] = float(spearmanr(predicted, gold).statistic)
            if self.measured_retrieval:
                documents = list(dict.fromkeys(search.document for search in self.measured_retrieval))
                scores = self._all([search.query for search in self.measured_retrieval]) @ self._all(documents).T
                best = zip(self.measured_retrieval, scores.argmax(dim=1).tolist(), strict=True)
                right = [document_id(documents[i]) in self.positives[search.query] for search, i in best]
                measured["accuracy"] = sum(right) / len(right)
        return {name: value for name, value in measured.items() if math.isfinite(value)}

    def _all(self, texts: Sequence[TaggedText], size: int = 64) -> Tensor:
        return torch.cat([self.embed(batch).cpu() for batch in batched(texts, size)])

    def verdict(self, first: Mapping[str, Any], last: Mapping[str, Any]) -> TrainingOutcome | None:
        """Compare accuracy and correlation on held-out rows with their values before training."""
        scores = {
            name: (first[name], last[name]) for name in ("accuracy", "spearman") if name in first and name in last
        }
        if not scores:
            return None
        text = ", ".join(f"{name} {after:.2f} ({before:.2f} before)" for name, (before, after) in scores.items())
        learnt = any(after > before for before, after in scores.values())
        return TrainingOutcome.of(learnt, f"Held-out rows: {text}")

    @contextmanager
    def _averages(self) -> Iterator[None]:
        """Use the averaged weights within the context, and restore the current weights afterwards."""
        saved = [weight.detach().clone() for weight in self._weights()]
        self.finish()
        try:
            yield
        finally:
            _put(self._weights(), saved)

    def finish(self) -> None:
        """Replace the model's weights with their averages."""
        if self.average:
            _put(self._weights(), map(sharded_like, self.average, self._weights()))

    def _weights(self) -> list[Tensor]:
        """The trained weights; sharding replaces them."""
        return [weight for weight in self.module.network.parameters() if weight.requires_grad]

    def state(self) -> dict[str, Any]:
        """The averaged weights, and all histories."""
        return {
            "pairs": self.pairs.state_dict(),
            "documents": self.documents.state_dict(),
            "recent": list(self.recent),
            "steps": self._steps,
            "average": self.average,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state`."""
        self.pairs.load_state_dict(state["pairs"])
        self.documents.load_state_dict(state["documents"])
        self.recent.extend(state["recent"])
        self._steps = state["steps"]
        self.average = [average.to(self.module.network.device) for average in state["average"]]


@torch.no_grad()
def averaged(averages: Sequence[Tensor], weights: Iterable[Tensor], steps: int) -> list[Tensor]:
    """``d a + (1 - d) w``, ``d = min(0.999, (1 + t) / (10 + t))``, of each weight; the weights themselves at t = 0."""
    if not steps:
        return [weight.detach().clone() for weight in weights]
    decay = min(DECAY, (1 + steps) / (10 + steps))
    return [average.lerp(weight, 1 - decay) for average, weight in zip(averages, weights, strict=True)]


@torch.no_grad()
def _put(weights: Iterable[Tensor], values: Iterable[Tensor]) -> None:
    for weight, value in zip(weights, values, strict=True):
        weight.copy_(value)
