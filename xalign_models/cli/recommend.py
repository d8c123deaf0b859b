"""``xalign recommend``."""

from dataclasses import asdict
from typing import Annotated

from typer import Option

from xalign_models.cli.common import check_inputs, language_codes, print_json, print_rows, say, split_list
from xalign_models.cli.options import Device, ForUse, Json, Languages
from xalign_models.languages import canonical


def recommend(
    backbone: Annotated[str, Option(help="Registered backbone, directory or hub id.")],
    corpus: Annotated[list[str], Option(help="Text, preferably with translations: ntrex, tatoeba_pairs, own:DIR, ...")],
    languages: Languages = None,
    pivot: Annotated[str, Option(help="Language that the others are paired with.")] = "eng-Latn",
    limit: Annotated[int | None, Option(min=1, help="Maximum number of rows per language and corpus.")] = 1000,
    seed: Annotated[int, Option(min=0, max=2**32 - 1, help="Seed of the folds.")] = 0,
    judge: Annotated[
        list[str] | None, Option(help="Other text or labelled tasks to judge on; by default held-out rows.")
    ] = None,
    use: ForUse = "retrieval",
    device: Device = None,
    json: Json = False,
) -> None:
    """Find the best alignment for a backbone on held-out text, if any improves it.

    Text without translations only shows whether to centre each language, unless --judge names a labelled task.
    """
    names, codes = split_list(corpus), language_codes(languages, None, all=None)
    check_inputs(backbone, corpora=names, languages=codes, params={"pivot": canonical(pivot)})
    from xalign_models.models.api import recommend as find

    recommendation = find(
        backbone=backbone,
        corpus=names,
        languages=codes,
        pivot=pivot,
        limit=limit,
        seed=seed,
        device=device,
        judge=split_list(judge),
        use=use,
    )
    if json:
        print_json(asdict(recommendation))
        return
    rows = [
        {
            "alignment": verdict.candidate.label,
            recommendation.measure: f"{verdict.score:.4f}",
            **({} if verdict.precision_at_1 is None else {"P@1": f"{verdict.precision_at_1:.4f}"}),
            "p": f"{verdict.p_gain:.1g}",
            "least gain": f"{verdict.worst_gain:+.4f} {verdict.worst}",
            "worse in": verdict.error or ", ".join(verdict.losses),
        }
        for verdict in recommendation.verdicts
    ]
    print_rows(rows, right=(recommendation.measure, "P@1", "p"))
    if recommendation.chosen.method and recommendation.card:
        print_rows([row.cells() for row in recommendation.card])
    say(recommendation.reason)
    if not judge and recommendation.measure == "MRR":
        say("The recommendation holds for text of this kind; --judge CORPUS tests it on other text.")
