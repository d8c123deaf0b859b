"""Tables of pages that are made of committed files: ``python -m benchmarks.claims --write`` fills them in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import permutations
from statistics import fmean

from benchmarks.sources import (
    BOARD,
    COMPOSED,
    analyses,
    analysis,
    chosen_alignments,
    mean,
    numbers,
    paper,
    points_under_best,
    score,
    scores,
    training,
)
from xalign_models.languages import display_name
from xalign_tasks.analyses.sensitivity import REGISTERED, SINGLE, VARIATIONS

TABLES: dict[str, Callable[[], str]] = {}
"""What writes a table, by the name in its marker."""

E5, MINILM, SMOL, GEMMA = "multilingual-e5-small-q4", "all-MiniLM-L6-v2", "smollm2-135m-q4", "gemma-3-270m-q4"
USE = "use-multilingual-v3"
SPACES = {"Gemma": GEMMA, "e5, layer 6": f"{E5}-layer6", "e5, last layer": E5, "MiniLM": MINILM, "USE": USE}
FREE = ("plain", "centered", "lir-1", "lsar", "lir-15")
"""Methods that need no translations."""
KOLIBRI = (
    "guj-Gujr", "hat-Latn", "hau-Latn", "khm-Khmr", "mya-Mymr",
    "nya-Latn", "pan-Guru", "swh-Latn", "tel-Telu", "yor-Latn",
)  # fmt: skip
"""Languages with little parallel text that Kolibri's interface is translated into."""
MODES = ("self-prompts", "en-prompts", "last-token")
SEVEN = "eng arb zho jpn rus deu spa"
FOUR = "eng deu spa rus"
ENGLISH, INTO_ENGLISH, FROM_ENGLISH = ("en-en", ".*-eng_Latn", "eng_Latn-.*")
STS17 = {"STS17": ("STS17CrossLingual", "mean")} | {
    pair: ("STS17CrossLingual", pair) for pair in ("en-en", "ar-ar", "es-es", "en-ar", "es-en", "en-tr")
}
"""Columns of its mean and its pairs, as task and language."""
MONOLINGUAL, CROSS, NO_ENGLISH = "ar-ar|es-es", "en-ar|es-en|en-tr", "(?!.*eng_Latn).*"


def table(function: Callable[[], str]) -> Callable[[], str]:
    """Register a table under its function's name, with hyphens."""
    TABLES[function.__name__.replace("_", "-")] = function
    return function


def markdown(header: Sequence[str], rows: Iterable[Sequence[object]], digits: int = 1) -> str:
    """A table: the first column to the left, the others to the right; numbers rounded, None empty."""

    def text(content: object) -> str:
        if content is None:
            return ""
        return f"{content + 0.0:.{digits}f}" if isinstance(content, float) else str(content)

    lines = [header, ["---", *["---:"] * (len(header) - 1)], *([*map(text, row)] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _rotation(model: str, languages: str = "", subsets: str = ".*") -> list[float]:
    """P@5 in percent before and after the rotation."""
    return [
        score(model, "IsomorphismStudy", subsets, languages=languages, metric=f"{when}_precision_at_5")
        for when in ("before", "after")
    ]


def _printed_rotation(mode: str) -> list[float]:
    number = dict(zip(MODES, ("01", "02", "08"), strict=True))[mode]
    name = f"isomorphism-table-{number}"
    codes = ("EN", "AR", "ZH", "JP", "RU", "DE", "ES")
    return [100 * paper(name, projection=when, row=codes, column=codes) for when in ("before", "after")]


@table
def isomorphism() -> str:
    """Gemma beside LLaMA2-7B: P@5 before and after a rotation, and STS17."""
    rows: list[list[object]] = []
    for mode in MODES:
        model = f"plain__{GEMMA}-{mode}"
        printed = (
            100 * paper("isomorphism-table-03", model="LLaMA2-7B", mode=mode, samples=0, subset="average")
            if (mode != "last-token")
            else None
        )
        rows.append(
            [mode, *_rotation(model, SEVEN), *_printed_rotation(mode), score(model, "STS17CrossLingual"), printed]
        )
    for samples in (100, 1000):
        model = f"contrastive-{samples}__{GEMMA}-en-prompts"
        printed = 100 * paper(
            "isomorphism-table-03", model="LLaMA2-7B", mode="en-prompts", samples=samples, subset="average"
        )
        rows.append(
            [
                f"en-prompts, {samples:,} rows",
                *_rotation(model, SEVEN),
                None,
                None,
                score(model, "STS17CrossLingual"),
                printed,
            ]
        )
    header = ("", "P@5 before", "after", "7B before", "7B after", "STS17", "7B STS17")
    return markdown(header, rows)


def _on_prompts(backbone: str, tuned: Sequence[int], languages: str) -> str:
    methods = ("plain", "centered", "lsar", "procrustes")
    spaces = [(mode, "", f"{backbone}-{mode}") for mode in MODES]
    spaces += [(f"en-prompts, {n:,} rows", f"contrastive-{n}", f"{backbone}-en-prompts") for n in tuned]

    def name(prefix: str, method: str, space: str) -> str:
        if method == "plain":
            return f"{prefix or 'plain'}__{space}"
        return f"{prefix + '+' if prefix else ''}{method}__{space}__ntrex"

    rows = [
        [
            label,
            *(score(name(prefix, method, space), "STS17CrossLingual") for method in methods),
            *(score(name(prefix, method, space), "FloresPrecision", languages=languages) for method in methods),
        ]
        for label, prefix, space in spaces
    ]
    return markdown(("", "STS17 plain", *methods[1:], "P@1 plain", *methods[1:]), rows)


@table
def gemma_alignments() -> str:
    """Alignments on Gemma's prompted spaces."""
    return _on_prompts(GEMMA, (100, 1000), SEVEN)


@table
def smollm2_alignments() -> str:
    """Alignments on SmolLM2's prompted spaces."""
    return _on_prompts(SMOL, (100,), FOUR)


@table
def twelve_languages() -> str:
    """P@5 in twelve languages, with English and Hindi on either side."""
    rows = [
        [mode]
        + [
            f"{before:.1f} to {after:.1f}"
            for subsets in (".*", FROM_ENGLISH, INTO_ENGLISH, "hin_Deva-.*", ".*-hin_Deva")
            for before, after in [_rotation(f"plain__{GEMMA}-{mode}", subsets=subsets)]
        ]
        for mode in MODES
    ]
    return markdown(("", "all 132 directions", "from English", "into English", "from Hindi", "into Hindi"), rows)


@table
def smollm2() -> str:
    """SmolLM2: P@5 before and after a rotation, STS17 by track."""
    models = {mode: f"plain__{SMOL}-{mode}" for mode in MODES}
    models["en-prompts, 100 rows"] = f"contrastive-100__{SMOL}-en-prompts"
    rows = [
        [label, *_rotation(model)]
        + [score(model, "STS17CrossLingual", tracks) for tracks in (".*", ENGLISH, MONOLINGUAL, "en-ar|es-en", "en-tr")]
        for label, model in models.items()
    ]
    return markdown(("", "P@5 before", "after", "STS17", "en-en", "ar-ar, es-es", "en-ar, es-en", "en-tr"), rows)


def _three(methods: Sequence[str], backbones: Mapping[str, str]) -> str:
    rows = []
    for method in methods:
        row: list[object] = [method]
        for backbone in backbones.values():
            model = f"{method}__{backbone}"
            row += [
                score(model, "Tatoeba36", beside=[f"centered__{backbone}"]),
                score(model, "XQuAD-R"),
                score(model, "LanguageIdentity", "common18"),
            ]
        rows.append(row)
    return markdown(
        ("", *(f"{name}: {task}" for name in backbones for task in ("Tatoeba", "XQuAD-R", "identity"))), rows
    )


@table
def spaces() -> str:
    """Methods that need no translations, in three spaces."""
    return _three(FREE, {name: SPACES[name] for name in ("Gemma", "e5, layer 6", "e5, last layer")})


@table
def more_spaces() -> str:
    """All methods in two more spaces."""
    return _three((*FREE, "procrustes", "affine"), {name: SPACES[name] for name in ("MiniLM", "USE")})


@table
def directions() -> str:
    """Tatoeba by direction, beside two models of the LSAR paper, which has English queries."""
    printed = {"plain": "Original", "centered": "Centered", "lir-1": "LIR(k=1)", "lsar": "LSAR", "lir-15": "LIR(k=15)"}
    rows = [
        [method]
        + [
            score(f"{method}__{backbone}", "Tatoeba36", direction, beside=[f"centered__{backbone}"])
            for direction in (FROM_ENGLISH, INTO_ENGLISH)
            for backbone in SPACES.values()
        ]
        + [paper("lsar-table-01", model=model, method=printed[method]) for model in ("mBERT", "XLM-R")]
        for method in FREE
    ]
    names = (f"{side}: {name}" for side in ("English queries", "into English") for name in SPACES)
    return markdown(("", *names, "paper: mBERT", "paper: XLM-R"), rows)


FOUR_SPACES = {name: backbone for name, backbone in SPACES.items() if name != "Gemma"}


@table
def maps() -> str:
    """Maps fitted on translations beside two rows without them, in four spaces: every task."""
    tasks = {**BOARD, "rotation": "Orthogonality"}
    rows = [
        [f"{name}: {method}", *(score(f"{method}__{backbone}", task) for task in tasks.values())]
        for name, backbone in FOUR_SPACES.items()
        for method in ("plain", "centered", "procrustes", "affine")
    ]
    return markdown(("", *tasks), rows)


@table
def compositions() -> str:
    """Shrunk rotations and compositions, in four spaces: every task."""
    rows = [
        [f"{name}: {method}", *(mean(method, backbone, task) for task in BOARD.values())]
        for name, backbone in FOUR_SPACES.items()
        for method in COMPOSED
    ]
    return markdown(("", *BOARD), rows)


@table
def sensitivity() -> str:
    """What reading the text otherwise changes: points of P@1 on FLORES, in the mean over languages."""
    spaces = {name: f"xalign/plain__{model}" for name, model in FOUR_SPACES.items()}
    file = "docs/results/analyses/sensitivity-changes.csv"
    rows = [  # a model that cannot do it has no row
        [name, *(next(iter(numbers(file, "change", variation=name, model=m)), None) for m in spaces.values())]
        for name in (SINGLE, *VARIATIONS)
    ]
    registered = [analysis("sensitivity-changes", "P@1", variation=REGISTERED, model=m) for m in spaces.values()]
    return markdown(("change in points", *spaces), [["P@1 as registered", *registered], *rows])


@table
def choices() -> str:
    """What `recommend` chooses for five divisions into folds, and how far that is from the best on the board."""
    rows = []
    for name, backbone in FOUR_SPACES.items():
        chosen = Counter(chosen_alignments(f"xalign/plain__{backbone}"))
        method = chosen.most_common(1)[0][0]
        under = [points_under_best(method, backbone, task) for task in list(BOARD.values())[:3]]
        lost = {label: mean("plain", backbone, task) - mean(method, backbone, task) for label, task in BOARD.items()}
        worst = max(lost, key=lost.__getitem__)
        counted = ", ".join(f"{alignment} {count}" for alignment, count in chosen.most_common())
        rows.append([name, counted, *under, f"{lost[worst]:.1f} ({worst})" if lost[worst] > 0.05 else "nothing"])
    return markdown(("", "chosen, of five", "Tatoeba", "FLORES", "XQuAD-R", "most lost against plain"), rows)


@table
def protocols() -> str:
    """LAReQA by fit text and by protocol: ours, and as LSAR's authors' code has it."""
    spaces = {"e5, layer 6": f"{E5}-layer6", "e5, last layer": E5}
    labels = {"centered": "centered-eleven", "lir-1": "lir-eleven", "lsar": "lsar-eleven"}
    rows: list[list[object]] = []
    for method in ("plain", *labels):
        row: list[object] = [method]
        for space in spaces.values():
            eleven = f"{labels[method]}__{space}__lingua-newstest" if method in labels else None
            row += [
                score(f"{method}__{space}", "XQuAD-R"),
                analysis("protocols", "score", model=f"xalign/{eleven}", task="XQuAD-R") if eleven else None,
                analysis("protocols", "score", model=f"xalign/{method}__{space}", task="XQuAD-R-as-published"),
                analysis("protocols", "score", model=f"xalign/{eleven}", task="XQuAD-R-as-published")
                if eleven
                else None,
            ]
        rows.append(row)
    kinds = ("ours", "ours, fit on eleven", "as published", "as published, fit on eleven")
    return markdown(("", *(f"{space}: {kind}" for space in spaces for kind in kinds)), rows)


@table
def embeddinggemma() -> str:
    """EmbeddingGemma, unaligned and with each alignment."""
    model = "google-embeddinggemma-300m"
    columns = {
        "STS17": ("embeddinggemma", "STS17CrossLingual"),
        "FLORES": ("embeddinggemma", "FloresPrecision"),
        "Tatoeba": ("embeddinggemma", "Tatoeba36"),
        "XQuAD-R": ("embeddinggemma-xquad", "XQuAD-R"),
    }
    methods = ("centered", "lsar", "procrustes", "procrustes-shrunk", "affine", "centered-affine")
    names = {"plain": f"plain__{model}"} | {m: f"{m}__{model}__ntrex-tatoeba_pairs" for m in methods}
    rows = [
        [
            label.replace("-affine", "+affine"),
            *(
                analysis(file, "score", model=f"xalign/{name}", task=task, language="mean")
                for file, task in columns.values()
            ),
        ]
        for label, name in names.items()
    ]
    return markdown(("", *columns), rows)


@table
def low_resource() -> str:
    """FLORES in languages whose fit text is short: the mean over the pairs of each with English and the others."""
    fits = {
        "lsar rank=10": "lsar",
        "centered": "centered",
        "procrustes-shrunk": "procrustes",
        "affine": "affine",
        "centered+affine": "centered-affine",
    }
    names = {"plain": f"plain__{E5}"} | {label: f"{fit}__{E5}__kolibri" for label, fit in fits.items()}
    columns = {"mean": "mean"} | {display_name(code): code for code in KOLIBRI}
    rows = [
        [
            label,
            *(
                analysis("low-resource", "score", model=f"xalign/{name}", task="FloresPrecision", language=code)
                for code in columns.values()
            ),
        ]
        for label, name in names.items()
    ]
    return markdown(("", *columns), rows)


@table
def lira_residual() -> str:
    """LiRA that keeps the English model's vector, with three candidates: the actor, the first, any, and no fusion."""
    labels = {
        "the actor's candidate": "lira",
        "the first candidate": "lira-first",
        "any candidate": "lira-random",
        "translate, then embed": "plain-translated",
    }
    others = {"FLORES, Arabic": ("FloresPrecision", "mean"), "products, Thai": ("ProductSearchStandIn", "mean")}
    unscored = {("lira-random", "ProductSearchStandIn")}
    rows = [
        [label, *_candidates("lira-residual", name, STS17 | others, unscored=unscored)]
        for label, name in labels.items()
    ]
    return markdown(("", *STS17, *others), rows)


@table
def lira_critic() -> str:
    """The same on new translations, with a language model as critic and without, by seed."""
    rows = [
        [f"{label}, seed {seed}", *_candidates(f"lira-critic-seed-{seed}", name, STS17)]
        for label, name in {"with the critic": "lira", "without": "lira-no-critic"}.items()
        for seed in (0, 1)
    ]
    rows += [
        [label, *_candidates("lira-critic-seed-0", name, STS17)]
        for label, name in {
            "the first candidate, seed 0": "lira-no-critic-first",
            "translate, then embed": "plain-translated",
        }.items()
    ]
    return markdown(("", *STS17), rows)


def _candidates(
    table: str, name: str, columns: Mapping[str, tuple[str, str]], unscored: Collection[tuple[str, str]] = ()
) -> list[float | None]:
    return [
        None
        if (name, task) in unscored
        else analysis(table, "score", model=f"xalign/{name}__{E5}__all-minilm-l6-v2", task=task, language=language)
        for task, language in columns.values()
    ]


@table
def gemma_maps() -> str:
    """Maps fitted on translations beside the other methods, in Gemma's space."""
    names = {method: f"{method}__{GEMMA}" for method in FREE}
    names |= {"procrustes": f"procrustes__{GEMMA}__ntrex", "affine": f"affine__{GEMMA}__tatoeba_pairs"}
    tasks = ("Tatoeba36", "XQuAD-R", "SIB200ZeroShot", "TweetSentimentZeroShot", "STS17CrossLingual")
    beside = [names["procrustes"], names["affine"]]
    rows = [
        [method, *(score(names[method], task, beside=beside) for task in tasks)]
        for method in ("plain", "procrustes", "affine", "centered", "lir-1", "lsar", "lir-15")
    ]
    return markdown(("", "Tatoeba", "XQuAD-R", "SIB-200", "tweets", "STS17"), rows)


@table
def other_tasks() -> str:
    """Topics and sentiment, by method, in five spaces."""
    rows = [
        [method]
        + [
            score(f"{method}__{backbone}", task)
            for task in ("SIB200ZeroShot", "TweetSentimentZeroShot")
            for backbone in SPACES.values()
        ]
        for method in FREE
    ]
    return markdown(("", *(f"{task}: {name}" for task in ("SIB-200", "tweets") for name in SPACES)), rows)


@table
def syntax() -> str:
    """Correlation with syntax of what is removed and of what is kept."""

    def correlation(backbone: str, part: str) -> str:
        pearson, p = (analysis("lsar-syntax-correlation", c, model=backbone, part=part) for c in ("pearson", "p_value"))
        return f"{pearson:.2f} (p = {p:.2g})"

    rows = [[name, correlation(space, "removed"), correlation(space, "kept")] for name, space in SPACES.items()]
    rows.append(
        ["mBERT (paper)", *(f"{paper('lsar-table-05', model='mBERT', part=part):.2f}" for part in ("removed", "kept"))]
    )
    return markdown(("", "removed", "kept"), rows)


@table
def ranks() -> str:
    """Tatoeba by the number of removed directions, and what families explain."""
    rows = []
    for name, space in SPACES.items():
        accuracy = analyses("lsar-ranks-sweep", "accuracy", model=space, method="lsar")
        families = analysis("lsar-families-separation", "eta_squared_families", model=space, direction=1)
        best = max(range(len(accuracy)), key=accuracy.__getitem__)
        rows.append([name, accuracy[0], accuracy[best], best, accuracy[-1], 100 * families])
    return markdown(
        ("", "none removed", "best", "at rank", "all 34 removed", "variance between families, first direction"), rows
    )


@table
def one_target() -> str:
    """One answer in the pool: in the question's own language, and in another."""
    columns = [f"mAP, one answer, {which} language" for which in ("same", "other")]
    names = {name: space for name, space in SPACES.items() if name != "e5, layer 6"}
    models = {(name, m): f"{m}__{space}" for name, space in names.items() for m in ("plain", "lsar")}
    models |= {("mBERT X-X (paper)", m.lower()): f"mBERT (X-X) {m} (paper)" for m in ("Original", "LSAR")}
    spaces = dict.fromkeys(name for name, _ in models)
    rows = []
    for name in spaces:
        pair = [model for (space, _), model in models.items() if space == name]
        rows.append([name, *(analysis("one-target-summary", column, model=m) for column in columns for m in pair)])
    return markdown(("", "own language: plain", "lsar", "another language: plain", "lsar"), rows)


@table
def map_gains() -> str:
    """Gains of maps that are fitted on Tatoeba, on FLORES; and in how many languages all four measures gain."""
    rows = []
    for name, space in SPACES.items():
        for fit in ("lsq", "distance"):
            row: list[object] = [name if fit == "lsq" else "", fit]
            for direction in ("English -> other", "other -> English"):
                where = {"model": f"xalign/plain__{space}", "fit_text": "Tatoeba", "fit": fit, "direction": direction}
                found = {
                    (test, column): analyses("linear-mapping-gains", column, test=test, **where)
                    for test in ("Tatoeba", "Flores", "newstest")
                    for column in ("dD", "dC", "fD", "fC")
                }
                for test in ("Tatoeba", "Flores", "newstest"):
                    good = [
                        dd > 0 and dc > 0 and fd > 0.5 and fc > 0.5
                        for dd, dc, fd, fc in zip(*(found[test, c] for c in ("dD", "dC", "fD", "fC")), strict=True)
                    ]
                    row.append(f"{sum(good)} of {len(good)}")
                row.append(f"{fmean(found['Flores', 'dC']):.3f}")
            rows.append(row)
    sides = [
        f"{side}: {what}"
        for side in ("from English", "into English")
        for what in ("Tatoeba", "FLORES", "newstest", "dC")
    ]
    return markdown(("", "fit", *sides), rows)


@table
def map_shapes() -> str:
    """How far maps are from rotations: all, of shuffled pairs, Berber's and Esperanto's, and by the fit's text."""
    rows = []
    for name in ("e5, layer 6", "e5, last layer", "USE"):
        model = f"xalign/plain__{SPACES[name]}"
        where = {"model": model, "direction": "English -> other", "fit_text": "Tatoeba"}
        means = [fmean(analyses("linear-mapping-shapes", f"p_mean_abs{kind}", **where)) for kind in ("", "_shuffled")]
        row: list[object] = [name, *(f"{value:.3f}" for value in means)]
        for claim in (
            "Berber: mean |p| above others'",
            "Berber: sigma(alpha) / mean above others'",
            "Esperanto: mean |p| above others'",
            "Esperanto: sigma(alpha) / mean above others'",
            "mean |p| lower if fitted on Tatoeba than on formal text (theirs UN, ours newstest)",
        ):
            of_claim = {"the_paper_says": claim, "model": model, "fit": "lsq"}
            held, of = (analysis("linear-mapping-directions", c, **of_claim) for c in ("holds", "of"))
            row.append(f"{held:.0f} of {of:.0f}")
        rows.append(row)
    names = ("Berber: mean abs p", "dilation", "Esperanto: mean abs p", "dilation", "Tatoeba nearer")
    return markdown(("", "mean abs p", "shuffled pairs", *names), rows)


@table
def neighbourhoods() -> str:
    """FLORES among ten languages without English: P@1 by three scores of a pair, and the neighbourhoods."""
    columns = {
        "P@1": "precision_at_1",
        "P@1 by CSLS": "csls_precision_at_1",
        "by ratio margin": "margin_precision_at_1",
        "MEXA": "mexa",
        "mutual neighbours": "mutual_neighbours",
        "never found": "never_found",
        "skewness": "hubness_skewness",
    }
    rows = []
    methods = dict.fromkeys(FOUR_SPACES.items(), ("plain", "centered", "lsar", "procrustes", "affine"))
    for (name, space), chosen in {**methods, ("Gemma", GEMMA): ("plain",)}.items():
        for method in chosen:
            where = {"model": f"{method}__{space}", "direction": "without English"}
            values = {head: analysis("measures-FloresPrecision", column, **where) for head, column in columns.items()}
            shares = {head: value if head == "skewness" else 100 * value for head, value in values.items()}
            rows.append([f"{name}: {method}", *shares.values()])
    return markdown(("", *columns), rows)


@table
def bias() -> str:
    """XQuAD-R: how much more frequent a language is among the ten best than in the pool, and agreement of ranks."""
    columns = {
        "own language": ("own_language_in_top_10", ".*"),
        "English, asked in another": ("english_in_top_10", "(?!eng).*"),
        "agreement": ("rank_agreement", ".*"),
    }
    rows = [
        [
            f"{name}: {method}",
            score(f"{method}__{space}", "XQuAD-R"),
            *(
                f"{score(f'{method}__{space}', 'XQuAD-R', subsets, metric=metric) / 100:.2f}"
                for metric, subsets in columns.values()
            ),
        ]
        for name, space in FOUR_SPACES.items()
        for method in ("plain", "centered", "lir-1", "lsar", "procrustes", "affine")
    ]
    return markdown(("", "mAP", *columns), rows)


@table
def preference() -> str:
    """XQuAD-R: whether the answer in the question's own language comes first, and what the best candidate is."""
    columns = {
        "own answer first": "own_language_first",
        "Lang-nDCG@10": "lang_ndcg_at_10",
        "right, own language": "right_own_language",
        "right, another": "right_other_language",
        "wrong, own language": "wrong_own_language",
        "wrong, another": "wrong_other_language",
    }
    rows = [
        [f"{name}: {method}", *(score(f"{method}__{space}", "XQuAD-R", metric=metric) for metric in columns.values())]
        for name, space in FOUR_SPACES.items()
        for method in ("plain", "centered", "lir-1", "lsar", "procrustes", "affine")
    ]
    return markdown(("", *columns), rows)


@table
def discrimination() -> str:
    """FLORES, mean of twelve languages: how often a translation is nearer than a changed English sentence."""
    changes = ("numbers", "negation", "names", "order", "dropped_clause", "all")
    names = {f"{name}: plain": f"plain__{space}" for name, space in FOUR_SPACES.items()}
    names |= {f"e5, last layer: {method}": f"{method}__{E5}" for method in ("lsar", "affine")}
    rows = [
        [
            label,
            *(
                100 * fmean(analyses("discrimination-accuracy", "accuracy", model=f"xalign/{name}", change=change))
                for change in changes
            ),
        ]
        for label, name in names.items()
    ]
    return markdown(("", *(change.replace("_", " ") for change in changes)), rows)


LAYERED = {"e5": E5, "MiniLM": MINILM, "Gemma": GEMMA, "SmolLM2": SMOL}


@table
def layers() -> str:
    """Nearness to English by layer, twelve languages of FLORES: the last layer, and the one with the best P@1."""
    rows = []
    for name, model in LAYERED.items():
        of_layer = {
            column: analyses("pivot-layers-means", column, model=model)
            for column in ("precision_at_1", "mexa", "cka", "rsa")
        }
        last = len(of_layer["mexa"]) - 1
        best = max(range(last + 1), key=lambda layer: of_layer["precision_at_1"][layer])
        pooled = [
            100 * fmean(analyses("pivot-layers-mexa", f"mexa_{kind}_over_layers", model=model))
            for kind in ("mean", "max")
        ]
        at = [100 * of_layer["precision_at_1"][layer] for layer in (last, best)]
        cka = [f"{of_layer['cka'][layer]:.2f}" for layer in (last, best)]
        rows.append([name, last, at[0], at[1], best, *pooled, *cka])
    head = ("layers", "P@1, last layer", "P@1, best layer", "at layer", "MEXA, mean of layers", "MEXA, best layer")
    return markdown(("", *head, "CKA, last layer", "CKA, P@1's best"), rows)


LUSIFER = {
    "LUSIFER": (f"lusifer__{E5}__{SMOL}", "Full"),
    "frozen encoder": (f"lusifer-frozen-encoder__{E5}__{SMOL}", "Frozen Multilingual Encoder"),
    "connector only": (f"lusifer-connector-only__{E5}__{SMOL}", "Connector Only"),
    "alignment only": (f"lusifer-alignment-only__{E5}__{SMOL}", "Alignment Only"),
    "fine-tuning only": (f"lusifer-finetuning-only__{E5}__{SMOL}", "Representation Finetuning Only"),
    "the LLM alone, fine-tuned": (f"lusifer-llm-alone__{SMOL}", ""),
    "the LLM as it is": (f"plain__{SMOL}", ""),
    "the encoder alone, fine-tuned": (f"lusifer-encoder-alone__{E5}", ""),
    "the encoder as it is": (f"plain__{E5}", ""),
}
LEAST_SQUARES = {
    "untrained": f"lusifer-untrained__{E5}__{SMOL}",
    "untrained, least squares": f"lusifer-untrained-least-squares__{E5}__{SMOL}",
    "alignment only": LUSIFER["alignment only"][0],
    "alignment only, least squares": f"lusifer-ls-alignment-only__{E5}__{SMOL}",
    "LUSIFER": LUSIFER["LUSIFER"][0],
    "LUSIFER, least squares": f"lusifer-ls__{E5}__{SMOL}",
}
UNSEEN = "eng tel tha swh"


@table
def lusifer() -> str:
    """LUSIFER and its ablations on STS17 and FLORES, beside the paper's averages."""
    rows = [
        [label, *_lusifer(model), row and paper("lusifer-table-03", model=f"LUSIFER ({row})", subset="average")]
        for label, (model, row) in LUSIFER.items()
    ]
    return markdown((*LUSIFER_COLUMNS, "paper"), rows)


@table
def lusifer_start() -> str:
    """LUSIFER with a random and with a least-squares start: before training, after stage 1 and after stage 2."""
    return markdown(LUSIFER_COLUMNS, [[label, *_lusifer(model)] for label, model in LEAST_SQUARES.items()])


@table
def lusifer_ablations() -> str:
    """LUSIFER and its ablations from a least-squares start, all trained with many pairs."""
    rows = [
        [label, *_lusifer(f"lusifer-{name}__{E5}__{SMOL}")]
        for label, name in {
            "LUSIFER": "ls",
            "frozen encoder": "ls-frozen-encoder",
            "connector only": "ls-connector-only",
            "fine-tuning only": "ls-finetuning-only",
            "alignment only": "ls-alignment-only",
            "untrained": "untrained-least-squares",
        }.items()
    ]
    rows += [
        ["with Gemma-3-270M", *_lusifer(f"lusifer-ls__{E5}__{GEMMA}")],
        ["encoder alone, fine-tuned", *_lusifer(f"lusifer-ls-encoder-alone__{E5}")],
        ["encoder as published", *_lusifer(f"plain__{E5}")],
    ]
    return markdown(LUSIFER_COLUMNS, rows)


@table
def lusifer_gemma() -> str:
    """LUSIFER with Gemma-3-270M, its parts and distillation, also on topics and on questions to a mixed pool."""
    both = f"{E5}__{GEMMA}"
    rows = []
    for label, model in {
        "LUSIFER": f"lusifer-ls__{both}",
        "distilled, then stage 2": f"lusifer-ls-distilled-tuned__{both}",
        "distilled": f"lusifer-ls-distilled__{both}",
        "alignment only": f"lusifer-ls-alignment-only__{both}",
        "LLM alone, fine-tuned": f"lusifer-ls-llm-alone__{GEMMA}",
        "encoder as published": f"plain__{E5}",
    }.items():
        topics = score(model, "SIB200ZeroShot", "(tel|tha|swh).*")
        questions = score(model, "XQuAD-R") if label in ("LUSIFER", "encoder as published") else ""
        rows.append([label, *_lusifer(model), topics, questions])
    return markdown((*LUSIFER_COLUMNS, "SIB-200", "XQuAD-R"), rows)


@table
def lusifer_seeds() -> str:
    """LUSIFER from a least-squares start, after stage 1 and after stage 2, by seed."""
    rows = []
    for label, model in (("alignment only", "lusifer-ls-alignment-only"), ("LUSIFER", "lusifer-ls")):
        by_seed = [_lusifer(f"{model}{suffix}__{E5}__{SMOL}") for suffix in ("", "-seed-1", "-seed-2")]
        rows += [[f"{label}, seed {seed}", *scored] for seed, scored in enumerate(by_seed)]
        rows.append([f"{label}, mean", *map(fmean, zip(*by_seed, strict=True))])
    return markdown(LUSIFER_COLUMNS, rows)


LUSIFER_COLUMNS = (
    "",
    "STS17 en-en",
    "ar-ar, es-es",
    "cross-lingual",
    "FLORES into English",
    "from English",
    "without English",
)


def _lusifer(model: str) -> list[float]:
    directions = (INTO_ENGLISH, FROM_ENGLISH, NO_ENGLISH)
    return [score(model, "STS17CrossLingual", tracks) for tracks in (ENGLISH, MONOLINGUAL, CROSS)] + [
        score(model, "FloresPrecision", subsets, languages=UNSEEN) for subsets in directions
    ]


@table
def lusifer_retrieval() -> str:
    """LUSIFER and its ablations on Tatoeba and XQuAD-R."""
    rows = []
    for label, (model, _) in LUSIFER.items():
        into = scores(model, "Tatoeba36", INTO_ENGLISH)

        def named(extreme: float, into: Mapping[str, float] = into) -> str:
            subsets = [subset for subset, accuracy in into.items() if accuracy == extreme]
            code = subsets[0].split("-")[0].replace("_", "-")
            return f"{'several' if len(subsets) > 1 else display_name(code)} {extreme:.1f}"

        rows.append(
            [
                label,
                fmean(into.values()),
                score(model, "Tatoeba36", FROM_ENGLISH),
                sum(accuracy >= 20 for accuracy in into.values()),
                named(max(into.values())),
                named(min(into.values())),
                score(model, "XQuAD-R"),
            ]
        )
    return markdown(
        ("", "Tatoeba into English", "from English", "languages at 20 or more", "best", "worst", "XQuAD-R"), rows
    )


@table
def lira_training() -> str:
    """Stage 1 by epoch, beside the paper's table 11."""
    rows = []
    for epoch in range(1, 9):
        chosen = training("lira-mini-arca", "chosen", line=epoch - 1)
        logged = [training("lira-mini-arca", key, line=epoch - 1) for key in ("loss", "similarity", "mismatched")]
        eps = training("lira-mini-arca", "epsilon_1", line=epoch - 1)
        printed = [paper("lira-table-11", subset=f"epoch {epoch}", metric=metric) for metric in ("loss", "similarity")]
        rows.append([epoch, *logged, eps, *(f"{100 * share:.0f}%" for share in chosen), *printed])
    header = ("epoch", "loss", "similarity", "mismatched", "eps1", "Gemma's", "reference", "corrupted")
    return markdown((*header, "loss, paper", "similarity, paper"), rows, digits=2)


LIRA, SMALL = f"{E5}__all-minilm-l6-v2", f"{E5}__{SMOL}"
LIRA_ROWS = {
    "both stages": f"lira__{LIRA}",
    "stage 1 alone": f"arca__{LIRA}",
    "untrained": f"plain__{LIRA}",
    "both stages, the English path alone": f"lira-english__{LIRA}",
    "untrained, the English path alone": f"plain-english__{LIRA}",
    "small, both stages": f"lira__{SMALL}",
    "small, untrained": f"plain__{SMALL}",
    "small, both stages, the English path alone": f"lira-english__{SMALL}",
    "small, untrained, the English path alone": f"plain-english__{SMALL}",
    "all-MiniLM-L6-v2 by itself": f"plain__{MINILM}",
    "multilingual-e5-small-q4 by itself": f"plain__{E5}",
}


@table
def lira() -> str:
    """LiRA and its baselines; English has a column of its own."""
    rows = []
    for label, model in LIRA_ROWS.items():
        sts = [score(model, "STS17CrossLingual", tracks) for tracks in (".*", ENGLISH, MONOLINGUAL, CROSS)]
        products = None if label.startswith("small, both stages, the") else score(model, "ProductSearchStandIn")
        flores = [score(model, "FloresPrecision", d, languages="eng deu arb") for d in (INTO_ENGLISH, NO_ENGLISH)]
        rows.append([label, *sts, products, *flores])
    header = (
        "",
        "STS17",
        "en-en",
        "ar-ar, es-es",
        "cross-lingual",
        "products",
        "FLORES into English",
        "without English",
    )
    return markdown(header, rows)


@table
def lira_ablations() -> str:
    """What LiRA loses without a part, in the paper and here."""
    parts = {
        "the critic": ("- LLM critic", "no-critic"),
        "the embedding critic": ("- Embeds critic", "no-embeds"),
        "translations": ("- Translations", "no-translations"),
        "the multilingual encoder": ("- Multi-enc", "no-multilingual"),
        "the queues": ("- FIFO queue", "no-queue"),
    }

    def measured(printed: str, label: str) -> list[float]:
        run = f"lira-mini{'-' + label if label else ''}"
        return [
            paper("lira-table-05", model=printed, task="LazRetrieval"),
            paper("lira-table-05", model=printed, task="STS22"),
            score(f"lira{'-' + label if label else ''}__{LIRA}", "STS17CrossLingual"),
            100 * training(run, "pearson"),
            100 * training(run, "accuracy"),
        ]

    full = measured("LiRA (full)", "")
    rows: list[list[object]] = [["nothing (the full model)", *full]]
    for part, (printed, label) in parts.items():
        differences = (without - with_ for without, with_ in zip(measured(printed, label), full, strict=True))
        rows.append([part, *(f"{difference:+.1f}" for difference in differences)])
    return markdown(("without", "LazRetrieval, paper", "STS22, paper", "STS17", "STS-B", "translations"), rows)


@table
def lira_queues() -> str:
    """Pearson by batch and by length of the history."""
    rows = []
    for batch, history in ((1, 0), (1, 8), (1, 32), (1, 128), (16, 0)):
        found = [training(f"lira-queue-{batch}-{history}-{seed}", "pearson") for seed in (0, 1, 2)]
        rows.append([batch, history or "none", fmean(found), min(found), max(found)])
    return markdown(("batch", "history", "Pearson, mean of three seeds", "lowest", "highest"), rows, digits=3)


@table
def lira_selection() -> str:
    """How often the actor picks the reference."""
    runs = {
        "without the critic, eight epochs": "mini-no-critic",
        "embedding critic alone, NTREX, two epochs": "mini-embeds-arca",
    }
    faults = ("words dropped", "words shuffled", "another sentence", "meta text", "all")
    rows: list[list[object]] = []
    for label, run in runs.items():
        found = [fmean(analyses("lira/selection-corrupted", "reference picked", model=run, against=f)) for f in faults]
        rows.append([label, *found[:4], fmean(found[:4]), found[4]])
    return markdown(("trained", *faults[:3], "wrapped", "mean of four", "all at once"), rows)


ALL_TEXTS = ("nothing", "English", "all languages")


def _migration(folder: str, names: Mapping[str, str], texts: Sequence[str] = ("nothing", "English")) -> str:
    """P@1 of an index's English sentences by text and number of pairs: English queries, and the mean of the others."""
    source = f"migration/{folder}/migration-migration"
    rows = []
    for (old, old_name), (new, new_name) in permutations(names.items(), 2):
        models = {"index": old, "queries": new}
        for fitted_on in texts:
            fits = {**models, "fitted_on": fitted_on}
            for pairs in sorted({int(n) for n in analyses(source, "pairs", **fits)}):
                columns = []
                for method in ("procrustes", "affine"):
                    chosen = {**fits, "pairs": pairs, "method": method if pairs else "no map"}
                    english = analysis(source, "mapped", language="eng-Latn", **chosen)
                    every = analyses(source, "mapped", **chosen)
                    columns += [english, (sum(every) - english) / (len(every) - 1)]
                text = fitted_on if pairs else "no map"
                rows.append((f"{old_name}, {new_name}", text, f"{pairs:,}" if pairs else "", *columns))
    header = ["index, queries", "fitted on", "pairs"]
    return markdown(
        [*header, *(f"{who}, {m}" for m in ("procrustes", "affine") for who in ("English", "others"))], rows
    )


@table
def migration_models() -> str:
    """An index of one model, queries of the other."""
    return _migration("models", {MINILM: "MiniLM", E5: "e5"}, ALL_TEXTS)


@table
def migration_quantisations() -> str:
    """e5 in float32 and in int8."""
    return _migration("quantisations", {E5: "float32", f"{E5}-int8": "int8"})


@table
def migration_modes() -> str:
    """Gemma's modes; on an English index its third, self-prompts, is en-prompts."""
    return _migration("modes", {f"{GEMMA}-{mode}": mode for mode in MODES[1:]}, ALL_TEXTS)
