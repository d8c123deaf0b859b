"""Stage 2: the fusion learns similarity and retrieval, with histories that make up for small batches."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from scipy.stats import pearsonr, spearmanr
from torch import Tensor
from tqdm.auto import tqdm

from xalign_models.training.lira.config import LasrConfig
from xalign_models.training.lira.correlation import similarity
from xalign_models.training.lira.data import MEASURED, Rated, Search, Split, Text, document_id
from xalign_models.training.lira.ema import EMA
from xalign_models.training.lira.loop import Metrics
from xalign_models.training.lira.module import LiRA, grow, unpack
from xalign_models.training.lira.ndcg import retrieval_loss
from xalign_models.training.lira.queues import CorrQueue, DocQueue, candidates, correlation_step

RECENT, QUANTILE, ENOUGH = 1024, 0.95, 32
"""The absolute threshold of near negatives: a quantile of the scores of recent positives, once there are enough."""


class Streams:
    """Both streams of every text, made once: Arca does not change in this stage.

    Args:
        module: The model after stage 1.
        texts: All that the stage will ask for.
        batch_size: Texts that are read together.
    """

    def __init__(self, module: LiRA, texts: Iterable[Text], batch_size: int = 32) -> None:
        distinct = sorted(dict.fromkeys(texts), key=lambda one: len(one.text))
        self._row = {one: row for row, one in enumerate(distinct)}
        found: list[tuple[Tensor, Tensor]] = []
        network = module.network.eval()
        with torch.no_grad():
            for start in tqdm(range(0, len(distinct), batch_size), desc="streams", delay=2, disable=None):
                batch = distinct[start : start + batch_size]
                features = module.preprocess([{"text": one.text, "lang": one.language} for one in batch])
                features = {name: one.to(network.device) if torch.is_tensor(one) else one
                            for name, one in features.items()}  # fmt: skip
                found.append(tuple(one.half().cpu() for one in network.streams(*unpack(features))))  # type: ignore[arg-type]
        self._both = [torch.cat(side) for side in zip(*found, strict=True)]

    def __call__(self, texts: Sequence[Text], device: torch.device) -> tuple[Tensor, Tensor]:
        """(n, S, d) each."""
        rows = [self._row[one] for one in texts]
        first, second = (side[rows].float().to(device) for side in self._both)
        return first, second


class Lasr:
    """The stage, for :func:`xalign_models.training.lira.loop.run`.

    Args:
        module: The model after stage 1; its fusion is trained in place.
        ranking: Pairs with scores.
        retrieval: Queries with documents.
        config: Hyperparameters.
    """

    def __init__(self, module: LiRA, ranking: Split, retrieval: Split, config: LasrConfig) -> None:
        self.module, self.config = module, config
        self.epochs, self.max_steps, self.seed = config.epochs, config.max_steps, config.seed
        self.ranking, self.retrieval = ranking, retrieval
        self._texts = {document_id(one.document): one.document for one in retrieval.train}
        self.positives: dict[Text, set[str]] = {}
        for one in (*retrieval.train, *retrieval.held_out):
            self.positives.setdefault(one.query, set()).add(one.document_id)
        self.measured_ranking: list[Rated] = ranking.held_out[:MEASURED]
        step = max(1, len(retrieval.held_out) // MEASURED)
        self.measured_retrieval: list[Search] = retrieval.held_out[::step]
        self.streams = Streams(module, [
            *(text for one in (*ranking.train, *self.measured_ranking) for text in (one.first, one.second)),
            *(text for one in (*retrieval.train, *self.measured_retrieval) for text in one),
        ])  # fmt: skip
        network = module.network
        if config.rank:
            grow(network, rank=config.rank, alpha=config.alpha, seed=config.seed)
            for name, weight in network.named_parameters():
                if "lora_" in name:
                    weight.requires_grad_(True)
                    network.tuned.add(name)
        network.fusion.requires_grad_(True)
        self.weights = [one for one in network.parameters() if one.requires_grad]
        self.optimizer = torch.optim.AdamW(self.weights, config.rate, weight_decay=0.0)
        self.average = EMA(network) if config.average else None
        self.pairs, self.documents = CorrQueue(config.correlation.max_len), DocQueue(config.loss.max_len)
        self.recent: deque[float] = deque(maxlen=RECENT)
        self._epoch: list[tuple[list[Rated], list[Search]]] = []
        self._steps = 0

    def batches(self, epoch: int) -> int:
        """Both sorts of rows in a new order; the shorter sort begins again where it ends."""
        draw = random.Random(self.seed * 1009 + epoch)
        pairs = _batches(self.ranking.train, self.config.ranking_batch, draw)
        queries = _batches(self.retrieval.train, self.config.retrieval_batch, draw)
        count = max(len(pairs), len(queries))
        self._epoch = [
            (pairs[i % len(pairs)] if pairs else [], queries[i % len(queries)] if queries else []) for i in range(count)
        ]
        return count

    def embed(self, texts: Sequence[Text]) -> Tensor:
        """(n, d_m) of unit length."""
        network = self.module.network
        return network.fuse(*self.streams(texts, network.device))

    def step(self, index: int) -> Metrics:
        """A batch of pairs, eq. 34, and a batch of queries, eq. 44."""
        self.module.network.train()
        pairs, queries = self._epoch[index]
        measured: Metrics = {}
        loss = torch.zeros((), device=self.module.network.device)
        if pairs:
            found = self._rank(pairs)
            loss = loss + self.config.ranking_weight * found["ranking_loss"]
            measured |= found
        if queries:
            found = self._search(queries)
            loss = loss + found["retrieval_loss"]
            measured |= found
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.weights, self.config.clip)
        self.optimizer.step()
        if self.average:
            self.average.update()
        self._steps += 1
        if self.config.refresh and self._steps % self.config.refresh == 0:
            self._refresh()
        plain = {name: float(one.detach()) if torch.is_tensor(one) else one for name, one in measured.items()}
        return {"loss": float(loss.detach()), "grad_norm": float(norm), **plain}

    def _rank(self, batch: Sequence[Rated]) -> Metrics:
        vectors = self.embed([one.first for one in batch] + [one.second for one in batch])
        predictions = similarity(vectors[: len(batch)], vectors[len(batch) :])
        gold = torch.tensor([one.score for one in batch], device=vectors.device)
        step = correlation_step(self.pairs, predictions, gold, self.config.correlation)
        return {"ranking_loss": step.loss, "waiting": float(step.waiting), "constant": float(step.constant)}

    def _search(self, batch: Sequence[Search]) -> Metrics:
        vectors = self.embed([one.query for one in batch] + [one.document for one in batch])
        queries, documents = vectors[: len(batch)], vectors[len(batch) :]
        ids, languages = [one.document_id for one in batch], [one.document.language for one in batch]
        found = candidates(
            queries, documents, ids, languages, [self.positives[one.query] for one in batch], languages,
            self.documents, self.config.loss.mined,
        )  # fmt: skip
        terms = retrieval_loss(*found, self.config.loss, self._threshold())
        self.documents.push(ids, languages, documents)
        self.recent.extend(similarity(queries, documents).detach().tolist())
        return {"retrieval_loss": terms.loss, "ndcg_loss": terms.ndcg, "hinge": terms.hinge,
                "moments": terms.moments, "near_negatives": terms.near}  # fmt: skip

    def _threshold(self) -> float:
        """What a negative must score to count as near: nothing does before enough positives were seen."""
        if len(self.recent) < ENOUGH:
            return float("inf")
        return float(torch.tensor(list(self.recent)).quantile(QUANTILE))

    @torch.no_grad()
    def _refresh(self) -> None:
        """Give the documents of the queue their present vectors, in their order."""
        for language, queue in self.documents.state_dict().items():
            ids = list(queue)
            for start in range(0, len(ids), self.config.retrieval_batch):
                some = ids[start : start + self.config.retrieval_batch]
                self.documents.push(some, [language] * len(some), self.embed([self._texts[one] for one in some]))

    @torch.no_grad()
    def measure(self, epoch: int) -> Metrics:
        """Pearson and Spearman on held-out pairs, top-1 accuracy on held-out queries, with the averaged weights."""
        self.module.network.eval()
        found: Metrics = {}
        with self.average.applied() if self.average else nullcontext():
            if len(self.measured_ranking) > 1:
                first = self._all([one.first for one in self.measured_ranking])
                second = self._all([one.second for one in self.measured_ranking])
                predicted, gold = similarity(first, second).numpy(), [one.score for one in self.measured_ranking]
                found |= {"pearson": float(pearsonr(predicted, gold).statistic),
                          "spearman": float(spearmanr(predicted, gold).statistic)}  # fmt: skip
            if self.measured_retrieval:
                documents = list(dict.fromkeys(one.document for one in self.measured_retrieval))
                scores = self._all([one.query for one in self.measured_retrieval]) @ self._all(documents).T
                best = [document_id(documents[i]) for i in scores.argmax(dim=1).tolist()]
                right = [
                    one in self.positives[row.query] for one, row in zip(best, self.measured_retrieval, strict=True)
                ]
                found["accuracy"] = sum(right) / len(right)
        return found

    def _all(self, texts: Sequence[Text], size: int = 64) -> Tensor:
        return torch.cat([self.embed(texts[start : start + size]).cpu() for start in range(0, len(texts), size)])

    def state_dict(self) -> dict[str, Any]:
        """Trained weights, their average, the optimiser, and all histories."""
        weights = {name: one.detach() for name, one in self.module.network.named_parameters() if one.requires_grad}
        return {
            "weights": weights, "optimizer": self.optimizer.state_dict(), "pairs": self.pairs.state_dict(),
            "documents": self.documents.state_dict(), "recent": list(self.recent), "steps": self._steps,
            "average": self.average.state_dict() if self.average else None,
        }  # fmt: skip

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state_dict`."""
        self.module.network.load_state_dict(state["weights"], strict=False)
        self.optimizer.load_state_dict(state["optimizer"])
        self.pairs.load_state_dict(state["pairs"])
        self.documents.load_state_dict(state["documents"])
        self.recent.extend(state["recent"])
        self._steps = state["steps"]
        if self.average:
            self.average.load_state_dict(state["average"])

    def finish(self) -> None:
        """Give the model the averaged weights for good."""
        if self.average and self._steps:
            self.average.keep()


def _batches(rows: Sequence[Any], size: int, draw: random.Random) -> list[list[Any]]:
    order = list(rows)
    draw.shuffle(order)
    return [order[start : start + size] for start in range(0, len(order), size)]
