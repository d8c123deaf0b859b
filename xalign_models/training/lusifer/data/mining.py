"""Hard negatives, mined by any model that xalign loads: passages near a query that do not answer it."""

import json
import logging
from collections.abc import Sequence
from dataclasses import asdict
from functools import partialmethod
from typing import Any

import numpy as np
import numpy.typing as npt
from datasets import Dataset
from sentence_transformers.util import dot_score, mine_hard_negatives, pairwise_dot_score

from xalign_models.configuration import AtLeastOne, Count, Share, configuration_class
from xalign_models.corpora import ENGLISH
from xalign_models.device import pick_device
from xalign_models.errors import DataError
from xalign_models.files import read_json
from xalign_models.models import building
from xalign_models.models.encoder import XAlignEncoder
from xalign_models.paths import atomic_write_text, cache_dir
from xalign_models.specs import digest
from xalign_models.store import open_store
from xalign_models.training.lusifer.data.base import TrainingRow

logger = logging.getLogger(__name__)


@configuration_class
class Miner:
    """Settings of the search for hard negatives.

    Attributes:
        model: Registered name, directory or hub id of the encoder that ranks the passages.
        negatives: Hard negatives per row.
        margin: Share by which a negative's similarity must be below the answer's; closer passages may be answers.
        skip: Number of nearest passages to skip, in addition to the answer.
    """

    model: str
    negatives: AtLeastOne
    margin: Share = 0.05
    skip: Count = 0


class _Encoder:
    """Adapts an encoder to sentence-transformers' miner, with the prompts of queries and documents."""

    def __init__(self, encoder: XAlignEncoder) -> None:
        self.encoder = encoder
        self.device = encoder.raw.device

    def _encode(self, side: str, texts: Sequence[str], **_: Any) -> npt.NDArray[np.float32]:
        prompt = self.encoder.prompts.get(side)
        return self.encoder.encode_texts(texts, [ENGLISH] * len(texts), prompt, f"mining ({side})", side)

    encode_query = partialmethod(_encode, "query")
    encode_document = partialmethod(_encode, "document")
    similarity = staticmethod(dot_score)
    similarity_pairwise = staticmethod(pairwise_dot_score)


def mine(rows: Sequence[TrainingRow], miner: Miner, device: str | None = None) -> list[TrainingRow]:
    """Add hard negatives, from the passages of all rows, to (query, passage) rows; drop rows with too few.

    All passages of equal queries are answers. Uses sentence-transformers' ``mine_hard_negatives``; the result is
    cached.

    Raises:
        ModelError: There is no such model.
        DataError: No row is left.
    """
    encoder = building.load_encoder(miner.model, device=pick_device(device), store=open_store())
    key = digest(encoder.mteb_model_meta.revision, encoder.prompts, asdict(miner), rows)
    path = cache_dir() / "negatives" / f"{key[:32]}.json"
    if path.is_file():
        return [tuple(row) for row in read_json(path, list, most=1 << 30)]
    table = mine_hard_negatives(
        Dataset.from_dict({"query": [row[0] for row in rows], "passage": [row[1] for row in rows]}),
        _Encoder(encoder),
        num_negatives=miner.negatives,
        relative_margin=miner.margin,
        range_min=miner.skip,
        range_max=miner.skip + 10 * miner.negatives + 10,
        output_format="n-tuple",
        verbose=False,
    )
    mined: list[TrainingRow] = list(zip(*(table[name] for name in table.column_names), strict=True))
    if not mined:
        raise DataError(
            f"mining: no row has {miner.negatives} passages that are {miner.margin:.0%} below its answer; "
            "lower mining.margin or mining.negatives, or give more samples."
        )
    logger.info("%d of %d rows have %d hard negatives.", len(mined), len(rows), miner.negatives)
    atomic_write_text(path, json.dumps(mined, ensure_ascii=False))
    return mined
