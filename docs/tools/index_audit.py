"""Audits and fixes an index of XQuAD's paragraphs in eleven languages, and measures what comes out.

``python -m docs.tools.index_audit FOLDER`` writes ``index-audit.csv`` and ``index-audit-languages.csv`` in
``docs/results/analyses``. FOLDER keeps the index, the queries and the fixed model. One half of the questions chooses
the method, and the other half measures it. The maps are fitted on NTREX, which has no text of XQuAD.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import xalign_models
from docs.tools.sources import ANALYSES, ROOT
from xalign_models.index import working
from xalign_models.index.auditing import contents, gather
from xalign_models.index.base import open_index
from xalign_models.index.expecting import K, expect
from xalign_models.linalg.arrays import Float32
from xalign_models.ranking.pools import one_target_ranks
from xalign_models.ranking.ranks import normalise
from xalign_tasks.analyses.ready_map import sides

MODEL, CORPUS, LIMIT = "multilingual-e5-small-q4", "ntrex", 1000
HALVES = ("expected", "other half")


def write_index(recipe: Any, folder: Path) -> list[list[dict[str, Any]]]:
    """Write the paragraphs with their vectors, and the queries of each half: text, language, id of a relevant row."""
    prompt = recipe.role_prompts()[-1]
    rows: list[dict[str, Any]] = []
    places: dict[tuple[str, int], int] = {}
    found: list[list[dict[str, Any]]] = [[], []]
    texts = sides()
    numbers = {code: list(dict.fromkeys(side.contexts)) for code, side in texts.items()}
    for code, paragraphs in numbers.items():
        vectors = normalise(recipe.encode(paragraphs, code, prompt=prompt))  # as the published model gives them
        for number, (text, vector) in enumerate(zip(paragraphs, vectors, strict=True)):
            places[code, number] = len(rows)
            rows.append({"id": len(rows), "text": text, "lang": code, "vector": vector})
    pq.write_table(pa.Table.from_pylist(rows), folder / "docs.parquet")
    halves = {key: number % 2 for number, key in enumerate(next(iter(texts.values())).questions)}
    for code, side in texts.items():
        for key, text in side.questions.items():
            number = numbers[code].index(side.contexts[side.answers[key]])
            query = {"text": text, "lang": code}
            found[halves[key]] += [{**query, "id": places[other, number]} for other in texts]
    for half, lines in enumerate(found):
        (folder / f"{half}.jsonl").write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))
    return found


def recall(queries: Float32, index: Float32, relevant: Sequence[Sequence[int]], own: Sequence[int]) -> dict[str, float]:
    """Recall@10 in percent of rows in a query's language, and of the others; other relevant rows are left out."""
    hits = one_target_ranks(queries, index, np.array(relevant)) <= K
    same = np.arange(hits.shape[1]) == np.array(own)[:, None]
    return {"same": 100 * float(hits[same].mean()), "across": 100 * float(hits[~same].mean())}


def records(recipe: Any, folder: Path) -> Iterator[dict[str, Any]]:
    """Recall of each method by half of the questions, and of the fixed index on the second half."""
    lines = write_index(recipe, folder)
    source = str(folder / "docs.parquet")
    index = open_index(source)
    for half, name in enumerate(HALVES):
        for row in expect(gather(index, None), recipe, CORPUS, LIMIT, folder / f"{half}.jsonl"):
            scores = {"same": 100 * (row.same or 0.0), "across": 100 * (row.across or 0.0)}
            yield {"method": row.candidate.label, "judged": name, **scores}
    index.drop()
    queries = folder / "0.jsonl"
    chosen, *_ = working.fix(index, folder / "maps", MODEL, corpus=CORPUS, limit=LIMIT, queries=queries)
    index.close()
    model = xalign_models.load(str(folder / "maps"), device="cpu")
    grouped: dict[tuple[str, str], list[int]] = {}
    for line in lines[1]:
        grouped.setdefault((line["text"], line["lang"]), []).append(line["id"])
    least = min(map(len, grouped.values()))  # one row per language; a few questions occur twice, with several answers
    grouped = {query: rows for query, rows in grouped.items() if len(rows) == least}
    fixed = pq.read_table(folder / "docs_xalign.parquet").to_pydict()
    texts = [{"text": text, "lang": code} for text, code in grouped]
    vectors = model.encode(texts, prompt_name="query", show_progress_bar=True)
    own = [[fixed["lang"][row] for row in rows].index(code) for (_, code), rows in grouped.items()]
    scores = recall(vectors, np.array(fixed["vector"], np.float32), list(grouped.values()), own)
    yield {"method": chosen, "judged": "fixed", **scores}


def main(folder: Path) -> None:
    """Write both tables."""
    folder.mkdir(parents=True, exist_ok=True)
    recipe = working.open_model(MODEL, "cpu")
    table = pd.DataFrame(records(recipe, folder)).round(2)
    table.to_csv(ROOT / ANALYSES / "index-audit.csv", index=False, lineterminator="\n")
    tables = contents(gather(open_index(str(folder / "docs.parquet")), None))
    languages = next(rows for rows in tables.values() if rows and "lift" in rows[0])
    pd.DataFrame(languages).to_csv(ROOT / ANALYSES / "index-audit-languages.csv", index=False, lineterminator="\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
