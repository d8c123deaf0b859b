"""Carries skills of an English model into other languages without their labels, and scores the free controls beside it.

``python -m docs.tools.english_skill FOLDER`` writes ``docs/results/analyses/english-skill.csv``. FOLDER keeps vectors
and connectors, so that the same command resumes. It takes about an hour of one core.

The skills are entailment (XNLI, 13 languages) and topics (SIB-200, 7 languages): classifiers of vectors that see
English labels alone. The English model is all-MiniLM-L6-v2. It reads another language through a connector from the token
states of multilingual-e5-small-q4, or a translation by Gemma-3-270M. The connector is fitted by least squares; distilled,
it then learns the English model's vectors of English text without labels.
"""

from __future__ import annotations

import copy
import csv
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import batch_to_device
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from xalign_models.training.losses import DistillationLoss
from xalign_models.training.lusifer.data.local import LOCAL

import xalign_models
from docs.tools.sources import ANALYSES, ROOT
from xalign_models.corpora import ENGLISH, read_lines
from xalign_models.generation.journal import batched
from xalign_models.generation.translators import Translations, make_translator
from xalign_models.languages import from_iso639_1
from xalign_models.paths import atomic_file, data_dir
from xalign_models.progress import live
from xalign_models.results.intervals import Sample, estimate
from xalign_models.training.lusifer.connector import join
from xalign_models.training.lusifer.module import Lusifer, modules_of
from xalign_models.training.lusifer.parts import base_of, load_encoder
from xalign_models.training.lusifer.start import fit_connector
from xalign_tasks.zero_shot import SIB200ZeroShot, XNLIZeroShot
from xalign_tasks.zero_shot.xnli import pair_features

ENCODER, ENGLISH_MODEL, TRANSLATOR = "multilingual-e5-small-q4", "all-minilm-l6-v2", "llm:gemma-3-270m-q4"
SEEDS, STEPS, BATCH, RATE = (0, 1, 2), 60, 32, 1e-4
ENGLISH_ROWS, ROWS, SICK, UNLABELLED, LONGEST = 1245, 90, 400, 2000, 120
"""Rows of XNLI (three a premise) in English and in other languages, and of SICK; texts without labels and their most characters."""
TOPICS = [from_iso639_1(code) for code in "en de ru ar hi sw th".split()]
TRANSLATED = {from_iso639_1(code): 30 for code in "ar".split()}
"""Languages that are translated, and the number of premises of XNLI."""
Vectors = npt.NDArray[np.float32]
Outcomes = dict[str, npt.NDArray[np.float64]]
"""By language, right (1) or wrong (0): the mean over seeds and over the hypotheses of a premise."""


class Texts:
    """The labelled text of both skills, and English text without labels."""

    def __init__(self) -> None:
        xnli, topics, root = XNLIZeroShot(), SIB200ZeroShot(), data_dir()
        topics.hf_subsets = TOPICS
        xnli.load_data()
        topics.load_data()
        self.xnli = {
            code: [side[: ENGLISH_ROWS if code == ENGLISH else ROWS] for side in rows]
            for code, rows in xnli.dataset.items()
        }
        self.topics: Mapping[str, dict[str, tuple[list[str], list[str]]]] = topics.dataset
        assert root is not None
        rows = [line.split("\t") for line in read_lines(root / "sick_en" / "SICK_train.txt")[1 : SICK + 1]]
        self.sick = [row[1] for row in rows], [row[2] for row in rows], [row[4].strip().lower() for row in rows]
        local = [source.read(4000, 0) for source in LOCAL if source.name in ("wikitext-2", "multi30k", "squad-nqg")]
        unlabelled = [text for rows in local for row in rows for text in row]
        for line in read_lines(root / "xnli" / "test_sentences" / "en.tsv"):
            unlabelled += line.split("\t")[1:]
        short = [text for text in dict.fromkeys(unlabelled) if 0 < len(text.strip()) < LONGEST]
        self.unlabelled = short[:: len(short) // UNLABELLED][:UNLABELLED]

    def all(self) -> list[tuple[str, str]]:
        """(language, text), distinct."""
        pairs = [(code, text) for code, rows in self.xnli.items() for side in rows[:2] for text in side]
        pairs += [(code, text) for code, parts in self.topics.items() for rows in parts.values() for text in rows[0]]
        pairs += [(ENGLISH, text) for side in self.sick[:2] for text in side]
        return list(dict.fromkeys(pairs))


class System:
    """Vectors of all texts of both skills, by language and text."""

    def __init__(self, texts: Sequence[tuple[str, str]], vectors: Vectors) -> None:
        self.rows = {text: row for row, text in enumerate(texts)}
        self.vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def __call__(self, language: str, texts: Sequence[str]) -> Vectors:
        """Unit vectors (n, d)."""
        return self.vectors[[self.rows[language, text] for text in texts]]


def kept(path: Path, make: Callable[[], Vectors]) -> Vectors:
    """The array of a file, which ``make`` makes once."""
    if not path.is_file():
        array = make()
        with atomic_file(path) as target, target.open("wb") as file:
            np.save(file, array)
    return np.load(path)


def untrained(texts: Sequence[str]) -> SentenceTransformer:
    """The English model behind a connector, which is fitted by least squares on English text."""
    english: Any = xalign_models.load(ENGLISH_MODEL, device="cpu")[0]
    reader = load_encoder(base_of(ENCODER, None, "float32"))
    model = english.model.requires_grad_(False).eval()
    lusifer = Lusifer(reader.requires_grad_(False).eval(), model, base_of(ENGLISH_MODEL, None, "float32"))
    ends = english.tokenizer.cls_token_id, english.tokenizer.sep_token_id
    explained = fit_connector(lusifer, english.tokenizer, ends, texts)
    print(f"The connector explains {explained:.2f} of the variance of the English model's words.")
    return SentenceTransformer(modules=modules_of(lusifer), device="cpu")


def distil(model: SentenceTransformer, texts: Sequence[str], targets: Vectors, seed: int) -> None:
    """Train the connector in place: a text's vector through it learns the English model's vector of the text."""
    torch.manual_seed(seed)
    module: Any = model[0]
    weights = list(module.connector.requires_grad_(True).parameters())
    loss, optimiser = DistillationLoss(model, 0.05), torch.optim.AdamW(weights, RATE, weight_decay=0.01)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=STEPS, pct_start=0.1)
    order = np.random.default_rng(seed).permutation(len(texts))
    for rows in live(list(batched(order[: STEPS * BATCH], BATCH)), desc=f"distil, seed {seed}"):
        features = batch_to_device(module.preprocess([texts[row] for row in rows]), model.device)
        loss([features], torch.from_numpy(targets[list(rows)])).backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimiser.step()
        rates.step()
        optimiser.zero_grad()


@torch.inference_mode()
def through(model: SentenceTransformer, connectors: Sequence[Any], texts: Sequence[str]) -> Vectors:
    """Means (connectors, n, d) over the English model's states; the encoder reads each text once for all connectors."""
    module: Any = model[0].eval()
    vectors = np.zeros((len(connectors), len(texts), module.get_embedding_dimension()), np.float32)
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    for rows in live(list(batched(order, 64)), desc="read"):
        features = module.preprocess([texts[row] for row in rows])
        mask = features["attention_mask"].bool()
        states = module.encoder(features)["token_embeddings"][mask]
        for place, connector in enumerate(connectors):
            end = connector.token.expand(len(mask), -1), mask.new_ones(len(mask), 1)
            embeds, real = join([(connector(states), mask), end])
            read = module.llm(inputs_embeds=embeds, attention_mask=real).last_hidden_state
            vectors[place, list(rows)] = (read * real[..., None]).sum(dim=1) / real.sum(dim=1, keepdim=True)
    return vectors


def systems(texts: Texts, folder: Path) -> Iterator[tuple[str, list[System]]]:
    """The systems by name, one a seed where seeds make a difference."""
    pairs = texts.all()
    words = [text for _, text in pairs]

    def embedded(name: str, words: Sequence[str], prompt: str | None = None) -> Vectors:
        return xalign_models.load(name, device="cpu").encode(list(words), prompt=prompt, show_progress_bar=True)

    encoder = kept(folder / "encoder.npy", lambda: embedded(ENCODER, words, "query: "))
    yield "encoder", [System(pairs, encoder)]
    languages = np.array([language for language, _ in pairs])
    means = np.stack([encoder[languages == language].mean(axis=0) for language in languages_of(pairs)])
    yield "centered encoder", [System(pairs, encoder - means[np.searchsorted(languages_of(pairs), languages)])]
    yield "English model", [System(pairs, kept(folder / "english.npy", lambda: embedded(ENGLISH_MODEL, words)))]
    targets = kept(folder / "targets.npy", lambda: embedded(ENGLISH_MODEL, texts.unlabelled))

    def connected() -> Vectors:
        model = untrained(texts.unlabelled)
        module: Any = model[0]
        start = copy.deepcopy(module.connector)
        connectors = [start]
        for seed in SEEDS:
            module.connector = copy.deepcopy(start)
            if not (path := folder / f"connector-{seed}.pt").is_file():
                distil(model, texts.unlabelled, targets, seed)
                torch.save(module.connector.state_dict(), path)
            module.connector.load_state_dict(torch.load(path))
            connectors.append(module.connector)
        return through(model, connectors, words)

    start, *distilled = kept(folder / "connected.npy", connected)
    yield "least squares", [System(pairs, start)]
    yield "distilled", [System(pairs, vectors) for vectors in distilled]
    chosen = [(language, text) for language, rows in TRANSLATED.items() for text in translated(texts, language, rows)]
    translations = Translations(make_translator(TRANSLATOR, "cpu"), folder)
    english = [row.text for row in translations.get([(text, language) for language, text in chosen], online=True)]
    vectors = kept(folder / "translated.npy", lambda: embedded(ENGLISH_MODEL, english))
    plain = System(pairs, np.load(folder / "english.npy"))
    own = [pair for pair in pairs if pair[0] == ENGLISH]
    yield "translate-test", [System([*own, *chosen], np.concatenate([plain(ENGLISH, [t for _, t in own]), vectors]))]


def languages_of(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """The languages of texts, sorted."""
    return sorted({language for language, _ in pairs})


def translated(texts: Texts, language: str, premises: int) -> list[str]:
    """The texts to translate: XNLI's rows of the first premises, and SIB-200's test."""
    rows = texts.xnli[language]
    return list(
        dict.fromkeys([*rows[0][: 3 * premises], *rows[1][: 3 * premises], *texts.topics[language]["test"][0][:100]])
    )


def entailment(texts: Texts, seeds: Sequence[System], teacher: System | None) -> Outcomes:
    """XNLI: each half of the premises by the English labels of the other half and of SICK, in every language.

    The classifier sees the system's own English vectors, or those of a teacher.
    """
    rights: dict[str, list[Any]] = {}
    premises, _, gold = texts.xnli[ENGLISH]
    labels, groups = np.array(gold), np.unique(premises, return_inverse=True)[1]
    for seed in SEEDS:
        system = seeds[seed % len(seeds)]
        halves = np.random.default_rng(seed).permutation(groups.max() + 1)[groups] % 2 == 1
        english = pair_features(*((teacher or system)(ENGLISH, side) for side in texts.xnli[ENGLISH][:2]))
        extra = pair_features(*((teacher or system)(ENGLISH, side) for side in texts.sick[:2]))
        heads = [
            LogisticRegression(max_iter=5000).fit(
                np.concatenate([english[halves != half], extra]),
                np.concatenate([labels[halves != half], texts.sick[2]]),
            )
            for half in (False, True)
        ]
        for language, rows in texts.xnli.items():
            count = len(rows[0]) if (language, rows[0][-1]) in system.rows else 3 * TRANSLATED.get(language, 0)
            if count:
                x = pair_features(*(system(language, side[:count]) for side in rows[:2]))
                right = np.where(halves[:count], heads[1].predict(x), heads[0].predict(x)) == labels[:count]
                rights.setdefault(language, []).append(right)
    return {language: np.mean(right, axis=0).reshape(-1, 3).mean(axis=1) for language, right in rights.items()}


def topics(texts: Texts, seeds: Sequence[System], teacher: System | None) -> Outcomes:
    """SIB-200 by a classifier of the English training part's vectors."""
    rights: dict[str, list[Any]] = {}
    for system in seeds:
        train, labels = texts.topics[ENGLISH]["train"]
        head = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=5000))
        head.fit((teacher or system)(ENGLISH, train), labels)
        for language, parts in texts.topics.items():
            test, gold = parts["test"]
            count = len(test) if (language, test[-1]) in system.rows else 100 * (language in TRANSLATED)
            if count:
                x = system(language, test[:count])
                right = head.predict(x) == np.array(gold[:count])
                rights.setdefault(language, []).append(right)
    return {language: np.mean(right, axis=0) for language, right in rights.items()}


def records(texts: Texts, folder: Path) -> Iterator[dict[str, Any]]:
    """Scores in percent of each system, head, language and quarter of the units by length, with the paired difference.

    ``fidelity`` is the mean cosine of a text's vector with the English model's vector of its English original.
    """
    skills = {"XNLI": entailment, "SIB-200": topics}
    english = {"XNLI": texts.xnli[ENGLISH][0], "SIB-200": texts.topics[ENGLISH]["test"][0]}
    lengths = {"XNLI": list(map(len, english["XNLI"][::3])), "SIB-200": list(map(len, english["SIB-200"]))}
    quarters = {skill: np.argsort(np.argsort(values)) * 4 // len(values) + 1 for skill, values in lengths.items()}
    encoder: dict[str, Outcomes] = {}
    teacher: System | None = None
    for name, seeds in systems(texts, folder):
        teacher = seeds[0] if name == "English model" else teacher
        for head, learnt_from in (("own", None), ("English model's", teacher)):
            if learnt_from is not None and name not in ("least squares", "distilled"):
                continue
            for skill, score in skills.items():
                outcomes = score(texts, seeds, learnt_from)
                encoder.setdefault(skill, outcomes)
                foreign = [language for language in outcomes if language != ENGLISH]
                alike = {code: fidelity(seeds[0], teacher, english[skill], texts, skill, code) for code in outcomes}
                for label, languages in {**{code: [code] for code in outcomes}, "mean": foreign}.items():
                    for quarter in ("all", 1, 2, 3, 4) if label in (ENGLISH, "mean") else ("all",):
                        used = {}
                        for code in languages:
                            units = slice(len(outcomes[code]))
                            chosen = (
                                np.ones(len(outcomes[code]), bool)
                                if quarter == "all"
                                else quarters[skill][units] == quarter
                            )
                            used[code] = outcomes[code][chosen], encoder[skill][code][units][chosen]
                        spoken = {code: [code] for code in languages}
                        ours, theirs = (Sample.of({c: pair[i] for c, pair in used.items()}, spoken) for i in (0, 1))
                        interval = estimate(ours - theirs)
                        values = 100 * np.array(
                            [ours.shares.sum(), (ours - theirs).shares.sum(), interval.low, interval.high]
                        )
                        row = dict(zip(("score", "difference", "low", "high"), values.round(2), strict=True))
                        near = np.mean([alike[code] for code in languages]) if teacher and quarter == "all" else None
                        yield {
                            "skill": skill,
                            "system": name,
                            "head": head,
                            "language": label,
                            "quarter": quarter,
                            **row,
                            "fidelity": None if near is None else round(float(near), 3),
                        }


def fidelity(
    system: System, teacher: System | None, english: Sequence[str], texts: Texts, skill: str, code: str
) -> float:
    """Mean cosine with the English model's vectors of the English originals; NaN in another space."""
    own = texts.xnli[code][0] if skill == "XNLI" else texts.topics[code]["test"][0]
    if teacher is None or system.vectors.shape[1] != teacher.vectors.shape[1]:
        return float("nan")
    rows = [(a, b) for a, b in zip(english[: len(own)], own, strict=True) if (code, b) in system.rows]
    return float((teacher(ENGLISH, [a for a, _ in rows]) * system(code, [b for _, b in rows])).sum(axis=1).mean())


def main(folder: Path) -> None:
    """Write the table."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = list(records(Texts(), folder))
    with (ROOT / ANALYSES / "english-skill.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
