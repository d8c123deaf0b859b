"""The same on many machines, through Ray (``pip install 'xalign[ray]'``): scoring a grid, encoding a big corpus."""

from xalign_models.on_ray.cluster import Cluster
from xalign_models.on_ray.encoding import encode_corpus
from xalign_models.on_ray.scoring import run

__all__ = ["Cluster", "encode_corpus", "run"]
