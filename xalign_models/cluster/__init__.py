"""Scoring, encoding and mapping on many machines, through Ray (``pip install 'xalign[ray]'``)."""

from xalign_models.cluster.cluster import Cluster
from xalign_models.cluster.encoding import encode_corpus
from xalign_models.cluster.running import run

__all__ = ["Cluster", "encode_corpus", "run"]
