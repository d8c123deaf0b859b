"""The queue of documents: what a query meets there, and what never reaches it."""

from __future__ import annotations

import pytest
import torch

from xalign_models.training.lira.ndcg import RetrievalConfig, retrieval_loss
from xalign_models.training.lira.queues import CorrQueue, DocQueue, RankedDocuments, candidates


def unit(n: int, seed: int = 0, d: int = 8) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.randn(n, d, generator=torch.Generator().manual_seed(seed)), dim=1)


def ask(queue: DocQueue, mined: int = 31, **changes: object) -> RankedDocuments:
    given = {
        "queries": unit(2, 1),
        "documents": unit(2, 2),
        "ids": ["a", "b"],
        "languages": ["deu-Latn", "deu-Latn"],
        "positives": [{"a"}, {"b"}],
        **changes,
    }
    return candidates(**given, queue=queue, mined=mined)  # type: ignore[arg-type]


def test_oldest_leave_by_language_and_new_copies_replace_old_ones() -> None:
    queue = DocQueue(2)
    queue.push(["x", "y", "z"], ["deu-Latn", "deu-Latn", "fra-Latn"], unit(3))
    queue.push(["x"], ["deu-Latn"], unit(1, 9))
    queue.push(["w"], ["deu-Latn"], unit(1, 8))  # y is now the oldest of German
    assert {name for language in queue.state_dict().values() for name in language} == {"x", "w", "z"}
    torch.testing.assert_close(queue.state_dict()["deu-Latn"]["x"], unit(1, 9)[0])
    again = DocQueue(2)
    again.load_state_dict(queue.state_dict())
    assert sum(map(len, again.state_dict().values())) == 3


def test_a_checkpoint_s_documents_join_those_that_came_since() -> None:
    queue = DocQueue(8)
    queue.load_state_dict({"deu-Latn": {"old": unit(1)[0]}})  # on the CPU, as checkpoints are read
    queue.push(["new"], ["deu-Latn"], unit(1, 5).to("meta"))  # in place of an accelerator
    assert queue.mine(unit(1, 1)[0].to("meta"), "deu-Latn", set(), 2).shape == (2, 8)


def test_a_query_meets_the_best_of_its_language() -> None:
    queue = DocQueue(64)
    german, french = unit(20, 3), unit(20, 4)
    queue.push([f"g{i}" for i in range(20)], ["deu-Latn"] * 20, german)
    queue.push([f"f{i}" for i in range(20)], ["fra-Latn"] * 20, french)
    found = ask(queue, 5)
    assert found.scores.shape == (2, 7)
    expected = (unit(2, 1) @ german.T).sort(dim=1, descending=True).values[:, :5]
    torch.testing.assert_close(found.scores[:, 2:], expected)
    assert bool(found.mask.all())


def test_positives_and_the_batch_itself_are_not_mined_again() -> None:
    queue = DocQueue(64)
    queue.push(["a", "right", "n"], ["deu-Latn"] * 3, unit(3, 3))
    found = ask(queue, positives=[{"a", "right"}, {"b"}])
    assert found.scores.shape == (2, 4)
    assert found.mask[0].tolist() == [True, True, True, False]  # n alone; padding behind it
    assert found.mask[1].tolist() == [True, True, True, True]  # for b's query `right` is a negative
    assert found.relevance.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0]]


def test_batch_documents_of_other_languages_and_second_copies_are_masked() -> None:
    found = ask(
        DocQueue(8),
        queries=unit(4, 1),
        documents=unit(4, 2),
        ids=["a", "b", "a", "c"],
        languages=["deu-Latn", "fra-Latn", "deu-Latn", "deu-Latn"],
        positives=[{"a"}, {"b"}, {"a"}, {"c"}],
    )
    german, french = [True, False, False, True], [False, True, False, False]
    assert found.mask.tolist() == [german, french, german, german]


def test_queue_gets_no_gradient_and_the_batch_does() -> None:
    queue = DocQueue(8)
    old = unit(3, 3).requires_grad_()
    queue.push(["x", "y", "z"], ["deu-Latn"] * 3, old)
    queries, documents = unit(2, 1).requires_grad_(), unit(2, 2).requires_grad_()
    found = ask(queue, queries=queries, documents=documents)
    retrieval_loss(*found, RetrievalConfig()).loss.backward()
    assert old.grad is None
    assert queries.grad is not None and documents.grad is not None
    assert float(queries.grad.norm()) > 0 and float(documents.grad.norm()) > 0


def test_no_queue_and_no_mining_are_the_batch_alone() -> None:
    queue = DocQueue(0)
    queue.push(["x"], ["deu-Latn"], unit(1, 3))
    assert not queue.state_dict()["deu-Latn"]
    assert ask(queue).scores.shape == (2, 2)
    queue = DocQueue(4)
    queue.push(["x"], ["deu-Latn"], unit(1, 3))
    assert ask(queue, 0).scores.shape == (2, 2)


def test_half_precision_is_scored_in_single() -> None:
    found = ask(DocQueue(4), queries=unit(2, 1).bfloat16(), documents=unit(2, 2).bfloat16())
    assert found.scores.dtype == torch.float32


def test_sides_of_other_lengths_are_a_mistake() -> None:
    with pytest.raises(ValueError, match="shorter"):
        CorrQueue(4).push(torch.zeros(3), torch.zeros(2))
    with pytest.raises(ValueError, match="shorter"):
        ask(DocQueue(4), positives=[{"a"}])
