"""LAReQA: answer retrieval from one pool of sentences in all languages."""

from xalign_tasks.lareqa.sets import MLQAR, XQuADR, XQuADRAsPublished
from xalign_tasks.lareqa.task import LAReQA

__all__ = ["MLQAR", "LAReQA", "XQuADR", "XQuADRAsPublished"]
