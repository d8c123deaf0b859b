"""Migrates an index of 4,000 English sentences to a new model, and measures what 2,000 questions lose.

``python -m docs.tools.index_migration FOLDER`` writes ``index-migration.csv`` in ``docs/results/analyses``. FOLDER
keeps the index. The sentences and questions are those of the training set ``squad-nqg``, which needs ``XALIGN_DATA``.
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from docs.tools.sources import ANALYSES, ROOT
from xalign_models.index import working
from xalign_models.index.base import open_index
from xalign_models.linalg.arrays import Float32
from xalign_models.ranking.ranks import nearest_others, normalise
from xalign_models.training.lusifer.data.sources import source

OLD, NEW, SENTENCES, QUESTIONS, K = "all-MiniLM-L6-v2", "multilingual-e5-small-q4", 4000, 2000, 10


def nearest(queries: Float32, rows: Float32) -> Any:
    """The k nearest rows of each query, (n, k)."""
    return nearest_others(queries, rows, np.full(len(queries), -1), K)


def main(folder: Path) -> None:
    """Write the table: recall of the answer's sentence, expected and measured loss, and questions within the bound."""
    folder.mkdir(parents=True, exist_ok=True)
    pairs = source("squad-nqg").read(None, 0)
    places = {text: place for place, text in enumerate([*dict.fromkeys(text for _, text in pairs)][:SENTENCES])}
    asked = [(places[text], question) for question, text in pairs if text in places][:QUESTIONS]
    found = {}
    for name in (OLD, NEW):
        recipe = working.open_model(name, "cpu")
        prompts = recipe.role_prompts()
        texts = ([*places], [question for _, question in asked])
        found[name] = [normalise(recipe.encode(side, "eng-Latn", prompt=prompts[place]))
                       for side, place in zip(texts, (-1, 0), strict=True)]  # fmt: skip
    columns = {"text": [*places], "lang": ["en"] * len(places), "vector": list(found[OLD][0])}
    pq.write_table(pa.table(columns), folder / "docs.parquet")
    index = open_index(str(folder / "docs.parquet"))
    index.drop()
    record, *_ = working.migrate(index, folder / "moved", old=OLD, new=NEW, device="cpu")
    moved = np.concatenate([rows.vectors for rows in index.read(second=True)])
    answers = np.array([place for place, _ in asked])[:, None]
    whole, here = nearest(found[NEW][1], found[NEW][0]), nearest(found[NEW][1], moved)
    losses = np.array(
        [1 - len({*one} & {*other}) / K for one, other in zip(whole.tolist(), here.tolist(), strict=True)]
    )
    expected = record["table"][0]
    values = {
        "recall, old model": (nearest(found[OLD][1], found[OLD][0]) == answers).any(axis=1).mean(),
        "recall, new model on its own index": (whole == answers).any(axis=1).mean(),
        "recall, new model on the migrated index": (here == answers).any(axis=1).mean(),
        "mean loss, expected": expected["mean loss"],
        "mean loss, measured": losses.mean(),
        "bound of the loss": expected["bound"],
        "questions within the bound": (losses <= expected["bound"]).mean(),
    }
    table = pd.DataFrame({"measure": [*values], "percent": [round(100 * value, 1) for value in values.values()]})
    table.to_csv(ROOT / ANALYSES / "index-migration.csv", index=False, lineterminator="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
