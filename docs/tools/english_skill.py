"""Carries skills of an English model into other languages without their labels, and scores the free controls beside it.

``python -m docs.tools.english_skill FOLDER`` writes ``docs/results/analyses/english-skill.csv``. FOLDER keeps vectors
and connectors, so that the same command resumes. The sizes below take an hour and a half of one core. With names of
systems after FOLDER, the rows of the others stay. Give it ``OMP_NUM_THREADS=1``: threads add in another order, which
changes an answer or two of the classifiers.

The skills are entailment (XNLI, 13 languages) and topics (SIB-200, 7 languages): classifiers of vectors that see
English labels alone. The English model is all-MiniLM-L6-v2. It reads other languages through a connector from
token states of multilingual-e5-small-q4, or a translation by Gemma-3-270M. Fitted by least squares, and distilled, it
then learns the English model's vectors of English text without labels.
"""

import copy
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from sentence_transformers import SentenceTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

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
from xalign_models.training.lusifer.data.base import LOCAL
from xalign_models.training.lusifer.module import Lusifer, modules_of
from xalign_models.training.lusifer.parts import base_of, load_encoder
from xalign_models.training.lusifer.start import fit_connector
from xalign_models.training.objective import DistillationLoss
from xalign_tasks.zero_shot import SIB200ZeroShot, XNLIZeroShot
from xalign_tasks.zero_shot.xnli import pair_features

ENCODER, ENGLISH_MODEL, TRANSLATOR = "multilingual-e5-small-q4", "all-minilm-l6-v2", "llm:gemma-3-270m-q4"
PACKAGED = "lusifer-small"
SEEDS, STEPS, BATCH, RATE = (0, 1, 2), 200, 32, 1e-4
ENGLISH_ROWS, ROWS, SICK = 2490, 240, 1500
"""Rows of XNLI in English and in each other language, three a premise, and of SICK."""
TRAIN, TEST, UNLABELLED, LONGEST = 300, 204, 6000, 120
"""Labelled texts of SIB-200; texts without labels and their maximum length in characters."""
TOPICS = [from_iso639_1(code) for code in "en de ru ar hi sw th".split()]
TRANSLATED = from_iso639_1("ar")
Vectors = npt.NDArray[np.float32]
Right = dict[str, npt.NDArray[np.float64]]
"""By language, the share of right answers of each unit: a premise of XNLI, a text of SIB-200."""


class Texts:
    """Labelled text of both skills, and English text without labels."""

    def __init__(self) -> None:
        xnli, topics, root = XNLIZeroShot(), SIB200ZeroShot(), data_dir()
        topics.hf_subsets = TOPICS
        xnli.load_data()
        topics.load_data()
        assert root is not None
        sizes = dict.fromkeys(xnli.dataset, ROWS) | {ENGLISH: ENGLISH_ROWS}
        self.xnli = {code: [side[: sizes[code]] for side in rows] for code, rows in xnli.dataset.items()}
        self.train = [side[:TRAIN] for side in topics.dataset[ENGLISH]["train"]]
        self.topics = {code: [side[:TEST] for side in parts["test"]] for code, parts in topics.dataset.items()}
        rows = [line.split("\t") for line in read_lines(root / "sick_en" / "SICK_train.txt")[1 : SICK + 1]]
        self.sick = [row[1] for row in rows], [row[2] for row in rows], [row[4].strip().lower() for row in rows]
        local = [source.read(4000, 0) for source in LOCAL if source.name in ("wikitext-2", "multi30k", "squad-nqg")]
        texts = [text for rows in local for row in rows for text in row]
        for line in read_lines(root / "xnli" / "test_sentences" / "en.tsv"):
            texts += line.split("\t")[1:]
        short = [text for text in dict.fromkeys(texts) if 0 < len(text.strip()) < LONGEST]
        self.unlabelled = short[:: len(short) // UNLABELLED][:UNLABELLED]
        pairs = [(code, text) for code, sides in self.xnli.items() for side in sides[:2] for text in side]
        for code, sides in self.topics.items():
            pairs += [(code, text) for text in (*sides[0], *(self.train[0] if code == ENGLISH else ()))]
        self.all = list(dict.fromkeys([*pairs, *((ENGLISH, text) for side in self.sick[:2] for text in side)]))


class System:
    """Unit vectors of texts, by language and text."""

    def __init__(self, texts: Sequence[tuple[str, str]], vectors: Vectors) -> None:
        self.rows = {text: row for row, text in enumerate(texts)}
        self.vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def __call__(self, language: str, texts: Sequence[str]) -> Vectors:
        """Vectors (n, d); those of texts without one at the end are left out."""
        return self.vectors[[self.rows[language, text] for text in texts if (language, text) in self.rows]]


def kept(path: Path, make: Callable[[], Any]) -> Vectors:
    """The array of a file, which ``make`` makes once."""
    if not path.is_file():
        array = make()
        with atomic_file(path) as target, target.open("wb") as file:
            np.save(file, array)
    return np.load(path)


def embedded(name: str, texts: Sequence[str], prompt: str | None = None) -> Any:
    """Vectors of a published model."""
    return xalign_models.load(name, device="cpu").encode(list(texts), prompt=prompt, show_progress_bar=True)


def connectors(texts: Texts, targets: Vectors, folder: Path) -> tuple[SentenceTransformer, list[Any]]:
    """The English model behind a connector: the connector of least squares, and the one that each seed distils."""
    english: Any = xalign_models.load(ENGLISH_MODEL, device="cpu")[0]
    frozen, reader = english.model.requires_grad_(False).eval(), load_encoder(base_of(ENCODER, None, "float32"))
    module: Any = Lusifer(reader.requires_grad_(False).eval(), frozen, base_of(ENGLISH_MODEL, None, "float32"))
    ends = english.tokenizer.cls_token_id, english.tokenizer.sep_token_id
    explained = fit_connector(module, english.tokenizer, ends, texts.unlabelled[::3])
    print(f"The connector explains {explained:.2f} of the variance of the English model's words.")
    model, made = SentenceTransformer(modules=modules_of(module), device="cpu"), [copy.deepcopy(module.connector)]
    loss = DistillationLoss(model, 0.05)
    for seed in SEEDS:
        module.connector = copy.deepcopy(made[0])
        weights = list(module.connector.requires_grad_(True).parameters())
        optimiser = torch.optim.AdamW(weights, RATE, weight_decay=0.01)
        rates = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=STEPS, pct_start=0.1)
        order, path = np.random.default_rng(seed).permutation(len(texts.unlabelled)), folder / f"connector-{seed}.pt"
        batches = list(batched(order[: STEPS * BATCH], BATCH)) if not path.is_file() else []
        for rows in live(batches, desc=f"distil, seed {seed}"):
            features = module.preprocess([texts.unlabelled[row] for row in rows])
            loss([features], torch.from_numpy(targets[list(rows)])).backward()
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimiser.step()
            rates.step()
            optimiser.zero_grad()
        if batches:
            torch.save(module.connector.state_dict(), path)
        module.connector.load_state_dict(torch.load(path))
        made.append(module.connector)
    return model, made


@torch.inference_mode()
def through(model: SentenceTransformer, made: Sequence[Any], texts: Sequence[str]) -> Vectors:
    """Means (connectors, n, d) over the English model's states; the encoder reads each text once for all connectors."""
    module: Any = model[0].eval()
    vectors = np.zeros((len(made), len(texts), module.get_embedding_dimension()), np.float32)
    for rows in live(list(batched(sorted(range(len(texts)), key=lambda row: len(texts[row])), 64)), desc="read"):
        features = module.preprocess([texts[row] for row in rows])
        mask = features["attention_mask"].bool()
        states = module.encoder(features)["token_embeddings"][mask]
        for place, connector in enumerate(made):
            end = connector.token.expand(len(mask), -1), mask.new_ones(len(mask), 1)
            embeds, real = join([(connector(states), mask), end])
            read = module.llm(inputs_embeds=embeds, attention_mask=real).last_hidden_state
            vectors[place, list(rows)] = (read * real[..., None]).sum(dim=1) / real.sum(dim=1, keepdim=True)
    return vectors


def systems(texts: Texts, folder: Path, wanted: Collection[str]) -> Iterator[tuple[str, list[System]]]:
    """The systems by name, one a seed where seeds differ; those that are not wanted only where they take little."""
    pairs, words = texts.all, [text for _, text in texts.all]
    encoder = kept(folder / "encoder.npy", lambda: embedded(ENCODER, words, "query: "))
    yield "encoder", [System(pairs, encoder)]
    codes, places = np.unique([language for language, _ in pairs], return_inverse=True)
    means = np.stack([encoder[places == place].mean(axis=0) for place in range(len(codes))])
    yield "centered encoder", [System(pairs, encoder - means[places])]
    plain = System(pairs, kept(folder / "english.npy", lambda: embedded(ENGLISH_MODEL, words)))
    yield "English model", [plain]
    if {"least squares", "distilled"} & set(wanted):
        targets = kept(folder / "targets.npy", lambda: embedded(ENGLISH_MODEL, texts.unlabelled))
        read = kept(folder / "connected.npy", lambda: through(*connectors(texts, targets, folder), words))
        yield "least squares", [System(pairs, read[0])]
        yield "distilled", [System(pairs, vectors) for vectors in read[1:]]
    if PACKAGED in wanted:
        yield PACKAGED, [System(pairs, kept(folder / "packaged.npy", lambda: embedded(PACKAGED, words)))]
    if "translate-test" not in wanted:
        return
    own, chosen = ([pair for pair in pairs if pair[0] == code] for code in (ENGLISH, TRANSLATED))
    translations = Translations(make_translator(TRANSLATOR, "cpu"), folder)
    english = [row.text for row in translations.get([pair[::-1] for pair in chosen], online=True)]
    vectors = kept(folder / "translated.npy", lambda: embedded(ENGLISH_MODEL, english))
    yield "translate-test", [System([*own, *chosen], np.concatenate([plain(ENGLISH, [t for _, t in own]), vectors]))]


def entailment(texts: Texts, system: System, teacher: System, seed: int) -> Right:
    """XNLI: half of the premises by the teacher's English vectors, labels of the other half and SICK; both ways."""
    premises, _, gold = texts.xnli[ENGLISH]
    labels, groups = np.array(gold), np.unique(premises, return_inverse=True)[1]
    halves = np.random.default_rng(seed).permutation(groups.max() + 1)[groups] % 2 == 1
    english, extra = (
        pair_features(*(teacher(ENGLISH, side) for side in s[:2])) for s in (texts.xnli[ENGLISH], texts.sick)
    )
    heads = [
        LogisticRegression(max_iter=5000).fit(
            np.concatenate([english[halves != half], extra]), [*labels[halves != half], *texts.sick[2]]
        )
        for half in (False, True)
    ]
    right = {}
    for language, sides in texts.xnli.items():
        if len(x := pair_features(*(system(language, side) for side in sides[:2]))):
            answers = np.where(halves[: len(x)], heads[1].predict(x), heads[0].predict(x))
            right[language] = (answers == labels[: len(x)]).reshape(-1, 3).mean(axis=1)
    return right


def topics(texts: Texts, system: System, teacher: System, seed: int) -> Right:
    """SIB-200, by a classifier of the teacher's vectors of the English training part."""
    head = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=5000))
    head.fit(teacher(ENGLISH, texts.train[0]), texts.train[1])
    found = {language: (system(language, sides[0]), sides[1]) for language, sides in texts.topics.items()}
    return {code: (head.predict(x) == np.array(gold)).astype(float) for code, (x, gold) in found.items() if len(x)}


def compared(
    right: Right, base: Right, languages: Sequence[str], lengths: Sequence[int], quarter: int
) -> dict[str, float]:
    """Mean score in percent of languages and a quarter of the units by length (0: all), and its paired difference."""
    samples = []
    for side in (right, base):
        units = {code: side[code][: len(right[code])] for code in languages}
        ranks = {code: np.argsort(np.argsort(lengths[: len(own)])) * 4 // len(own) + 1 for code, own in units.items()}
        cut = {code: own[ranks[code] == quarter] if quarter else own for code, own in units.items()}
        samples.append(Sample.of(cut, {code: [code] for code in languages}))
    ends = estimate(gap := samples[0] - samples[1])
    values = {"score": samples[0].shares.sum(), "difference": gap.shares.sum(), "low": ends.low, "high": ends.high}
    return {name: round(100 * float(value), 2) for name, value in values.items()}


def records(texts: Texts, folder: Path, wanted: Collection[str]) -> Iterator[dict[str, Any]]:
    """A row of each system, head, language and quarter of the units by length; differences are from the encoder.

    ``fidelity`` is the mean cosine of texts with the English model's vectors of their English originals.
    """
    base: dict[str, Right] = {}
    teacher: System | None = None
    for name, seeds in systems(texts, folder, wanted):
        teacher = seeds[0] if name == "English model" else teacher
        heads = {"own": None, "English model's": teacher} if name in READERS else {"own": None}
        for (head, other), (skill, score) in ((h, s) for h in heads.items() for s in SKILLS.items()):
            used = [seeds[seed % len(seeds)] for seed in SEEDS]
            runs = [score(texts, system, other or system, seed) for seed, system in zip(SEEDS, used, strict=True)]
            right = {code: np.mean([run[code] for run in runs], axis=0) for code in runs[0]}
            base.setdefault(skill, right)
            sides = {code: rows[0] for code, rows in (texts.xnli if skill == "XNLI" else texts.topics).items()}
            lengths = [len(text) for text in sides[ENGLISH][:: 3 if skill == "XNLI" else 1]]
            rows = {code: [code] for code in right} | {"mean": [code for code in right if code != ENGLISH]}
            for language, codes in rows.items():
                alike = [fidelity(seeds[0], teacher, code, sides) for code in codes] if teacher else []
                for quarter in (0, 1, 2, 3, 4) if language == "mean" else (0,):
                    yield {
                        "skill": skill, "system": name, "head": head, "language": language, "quarter": quarter or "all",
                        **compared(right, base[skill], codes, lengths, quarter),
                        "fidelity": round(float(np.mean(alike)), 3) if alike and not quarter else None,
                    }  # fmt: skip


def fidelity(system: System, teacher: System, code: str, sides: Mapping[str, Sequence[str]]) -> float:
    """Mean cosine of a language's texts with the teacher's vectors of their English originals."""
    count = len(sides[code])
    return float((system(code, sides[code]) * teacher(ENGLISH, sides[ENGLISH][:count])).sum(axis=1).mean())


READERS = ("least squares", "distilled", PACKAGED)
"""The systems that read through a connector."""
SYSTEMS = ("encoder", "centered encoder", "English model", *READERS, "translate-test")
SKILLS: dict[str, Callable[[Texts, System, System, int], Right]] = {"XNLI": entailment, "SIB-200": topics}

if __name__ == "__main__":
    place = Path(sys.argv[1])
    place.mkdir(parents=True, exist_ok=True)
    chosen, path = sys.argv[2:] or SYSTEMS, ROOT / ANALYSES / "english-skill.csv"
    table = pd.DataFrame(records(Texts(), place, chosen))
    if set(chosen) != set(SYSTEMS):
        before = pd.read_csv(path)
        table = pd.concat([before[~before["system"].isin(chosen)], table[table["system"].isin(chosen)]])
        table = table.sort_values("system", key=lambda names: names.map(SYSTEMS.index), kind="stable")
    table.to_csv(path, index=False, lineterminator="\n")
