"""Which alignment ``xalign recommend`` chooses for a backbone, and whether the choice depends on the folds."""

from functools import partial

from xalign_models import corpora
from xalign_models.analysis import Findings, Request
from xalign_models.languages import canonical
from xalign_models.models.api import recommend
from xalign_models.models.names import find_spec
from xalign_tasks.analyses.base import Study

CORPORA = ("ntrex", "tatoeba_pairs")
SEEDS, ROWS = 5, 500
"""Number of divisions into folds, and default number of rows per language and corpus."""
LANGUAGES = tuple(map(canonical, "ar de fi hi ja ru es th tr zh".split()))


def analyse(request: Request) -> Findings:
    """Every candidate's held-out scores for each model and seed, and the chosen candidate.

    Raises:
        ModelError: A model is aligned already.
    """
    languages = request.languages or LANGUAGES
    study = Study({name: corpora.load(name).fingerprint(languages) for name in CORPORA})
    for model in request.named():
        for seed in range(SEEDS):
            made = partial(recommend, backbone=model, corpus=CORPORA, languages=languages, device=request.device)
            recommendation = made(limit=request.rows or ROWS, seed=seed)
            rows = [
                {
                    "alignment": verdict.candidate.label,
                    "chosen": verdict.candidate == recommendation.chosen,
                    "score": round(verdict.score, 6),
                    "precision_at_1": round(verdict.precision_at_1 or 0.0, 6),
                    "p_gain": float(f"{verdict.p_gain:.1g}"),
                    "worst": verdict.worst,
                    "worst_gain": round(verdict.worst_gain, 6),
                    "losses": len(verdict.losses),
                }
                for verdict in recommendation.verdicts
            ]
            study.add("choices", rows, model=find_spec(model).name, seed=seed)
    return study.findings(
        "`score` is the mean reciprocal rank of held-out translations in both directions, the mean over languages. "
        "`losses` counts the languages in which the alignment is worse than the plain backbone beyond chance, in "
        "retrieval or in similarity."
    )
