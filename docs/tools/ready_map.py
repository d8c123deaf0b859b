"""Fits the map that comes with xalign and writes it with its card.

XALIGN_DATA must have NTREX, SQuAD, WikiText-2 and XQuAD-R.

python docs/tools/ready_map.py
"""

import json

import numpy as np
from safetensors.numpy import save

from xalign_models import corpora
from xalign_models.alignments.shrinkage import ridge_by_leave_one_out
from xalign_models.corpora import ENGLISH
from xalign_models.linalg.arrays import Float64
from xalign_models.models.building import load_encoder
from xalign_models.portable.loading import FORMAT, READY
from xalign_models.ranking.ranks import normalise
from xalign_models.store import open_store
from xalign_tasks.analyses.ready_map import NAME, fit_texts, sides

QUERIES, INDEX = "multilingual-e5-small-q4", "all-MiniLM-L6-v2"
LANGUAGES = (
    "afr-Latn arb-Arab ben-Beng bul-Cyrl deu-Latn ell-Grek eng-Latn est-Latn eus-Latn fin-Latn fra-Latn heb-Hebr "
    "hin-Deva hun-Latn ind-Latn ita-Latn jpn-Jpan kat-Geor kaz-Cyrl kor-Hang mal-Mlym mar-Deva nld-Latn pes-Arab "
    "por-Latn rus-Cyrl spa-Latn swh-Latn tam-Taml tel-Telu tgl-Latn tha-Thai tur-Latn urd-Arab vie-Latn zho-Hans "
    "zsm-Latn"
).split()  # fmt: skip
CARD = """# {name}

Maps unit vectors of queries by {queries} (prompt `query: `) to the space of {index}:
`y = (x - mu_l + mu_en) W + b`, of unit length.

- W and b: ridge with the least leave-one-out error, fitted on {texts:,} English texts: questions and sentences of SQuAD
  1.1 in the division of Du et al. (2017), test files (CC BY-SA 4.0), sentences of WikiText-2 (CC BY-SA 3.0) and of
  NTREX-128 (CC BY-SA 4.0). {removed} texts were left out because XQuAD has them.
- mu_l: means of NTREX-128's sentences in {count} languages (CC BY-SA 4.0). No translation and no label is used.
- Made by `docs/tools/ready_map.py`. Scores: `xalign analyse ready-map`, docs/vectors.md.
- The file holds numbers only, no text.
"""


def main() -> None:
    """Write ``map.json``, ``map.safetensors`` in float16 and the card."""
    queries, index = (load_encoder(name, store=open_store()) for name in (QUERIES, INDEX))
    texts, removed = fit_texts(sides()[ENGLISH])
    prompt = queries.prompts["query"]
    weight, shift = ridge_by_leave_one_out(
        normalise(queries.raw.encode(texts, prompt)), normalise(index.raw.encode(texts, ""))
    )
    ntrex = corpora.load("ntrex")
    means: dict[str, Float64] = {
        code: normalise(queries.raw.encode(ntrex.texts(code), prompt, f"encode {code}")).mean(axis=0)
        for code in LANGUAGES
    }
    shifts = np.stack([shift + (means[ENGLISH] - mean) @ weight for mean in means.values()])
    folder = READY / NAME.removeprefix("map:").replace("->", "--")
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {"weight": weight[None].astype(np.float16), "shift": shifts.astype(np.float16)}
    (folder / "map.safetensors").write_bytes(save(arrays))
    settings = {
        "format": FORMAT, "method": "ridge", "dim": len(weight), "normalise": True, "default_lang": None,
        "unknown": "mean", "prompts": {}, "unknown_prompt": "default", "length": 1.0, "pivot": ENGLISH,
        "queries": QUERIES, "index": INDEX, "languages": {code: place for place, code in enumerate(LANGUAGES)},
    }  # fmt: skip
    (folder / "map.json").write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    facts = {"queries": QUERIES, "index": INDEX, "texts": len(texts), "removed": removed, "count": len(LANGUAGES)}
    (folder / "README.md").write_text(CARD.format(name=NAME, **facts), encoding="utf-8")
    print(f"{len(texts)} texts, {removed} left out: {folder}")


if __name__ == "__main__":
    main()
