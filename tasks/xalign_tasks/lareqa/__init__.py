"""LAReQA: answer retrieval from one pool of sentences in all languages."""

from xalign_tasks.lareqa.task import MLQAR, LAReQA, XQuADR, XQuADRAsPublished

__all__ = ["MLQAR", "LAReQA", "XQuADR", "XQuADRAsPublished"]
