"""Language bias of a mixed pool: whether a question finds sentences by their language rather than their meaning.

All measures use only the ranking: each question's ten best candidates, and the ranks of its answers.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from scipy.stats import rankdata

from xalign_models.corpora import ENGLISH
from xalign_models.ranking.graded import graded_measures

Counts = npt.NDArray[np.int64]
TRANSLATION = 0.5
"""Gain of an answer in another language than the question's; an answer in the same language has 1."""


def language_shares(
    question_languages: Counts, top: Counts, of_pool: Counts, languages: Sequence[str]
) -> dict[str, dict[str, float]]:
    """How much more frequent a language is among the ten best than in the pool, by language of the question.

    Args:
        question_languages: (n,) index of each question's language.
        top: (n, 10) candidates of each question, rows of the pool.
        of_pool: (m,) index of each candidate's language.
        languages: Canonical codes by index.

    Returns:
        By language: ``own_language_in_top_10``, the share of the question's own language over its share in the pool,
        and ``english_in_top_10``, likewise for English; 1 is no preference.
    """
    in_pool = np.bincount(of_pool, minlength=len(languages)) / len(of_pool)
    shares: dict[str, dict[str, float]] = {}
    for index, language in enumerate(languages):
        of_top = of_pool[top[question_languages == index]]
        shares[language] = {"own_language_in_top_10": float((of_top == index).mean() / in_pool[index])}
        if ENGLISH in languages:
            english = languages.index(ENGLISH)
            shares[language]["english_in_top_10"] = float((of_top == english).mean() / in_pool[english])
    return shares


def rank_agreement(questions: Mapping[str, Sequence[str]], ranks: Counts) -> dict[str, float]:
    """Whether a question asked in several languages ranks its answers alike.

    The mean of Spearman's correlations with the same question in every other language, between the ranks of its
    answers; of questions with three answers or more whose ranks differ.

    Args:
        questions: Language to the ids of its questions; the same id is the same question.
        ranks: (n, k) rank of each question's answer in each language, in the order of ``questions``; 0 if none.

    Returns:
        By language, if there is such a question.
    """
    forms: dict[str, list[tuple[str, int]]] = {}
    askings = ((language, question) for language, ids in questions.items() for question in ids)
    for row, (language, question) in enumerate(askings):
        forms.setdefault(question, []).append((language, row))
    by_language: dict[str, list[float]] = {}
    for of_question in forms.values():
        of_answers = ranks[[row for _, row in of_question]]
        answered = (of_answers > 0).all(axis=0)
        if answered.sum() < 3 or len(of_question) < 2:
            continue
        order = rankdata(of_answers[:, answered], axis=1)
        order -= order.mean(axis=1, keepdims=True)
        lengths = np.linalg.norm(order, axis=1)
        with np.errstate(invalid="ignore"):  # equal ranks have no correlation
            correlations = (order @ order.T) / np.outer(lengths, lengths)
        np.fill_diagonal(correlations, np.nan)
        for (language, _), row in zip(of_question, correlations, strict=True):
            by_language.setdefault(language, []).extend(row[np.isfinite(row)])
    return {language: float(np.mean(values)) for language, values in by_language.items() if values}


def language_preference(
    question_languages: Counts, ranks: Counts, first: Counts, languages: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Whether a question finds its answer in its own language before the answer's translations (arXiv 2605.07249).

    Args:
        question_languages: (n,) index of each question's language.
        ranks: (n, k) rank of each question's answer in each language, from 1; 0 if none.
        first: (n,) index of the language of each question's best candidate.
        languages: The k canonical codes by index.

    Returns:
        By language, over its questions that have answers both in it and in another language:

        - ``own_language_first``: the share whose own answer is above all its translations; 1 / k if a model has no
          preference.
        - ``lang_ndcg_at_10``: nDCG of the ten best with a gain of 1 for the own answer and of 1/2 for its translations.
          The gains are ours.
        - ``right_own_language``, ``right_other_language``, ``wrong_own_language``, ``wrong_other_language``: shares by
          whether the best candidate is an answer, and by its language.
    """
    own = ranks[np.arange(len(ranks)), question_languages]
    asked = (own > 0) & ((ranks > 0).sum(axis=1) > 1)
    own, ranks, question_languages, first = (side[asked] for side in (own, ranks, question_languages, first))
    gains = np.where(question_languages[:, None] == np.arange(len(languages)), 1.0, TRANSLATION)
    measures = graded_measures(ranks, gains)
    right, at_home = (ranks == 1).any(axis=1), first == question_languages
    of_question = {
        "own_language_first": measures["mrr"] == 1 / own,
        "lang_ndcg_at_10": measures["ndcg_at_10"],
        "right_own_language": right & at_home,
        "right_other_language": right & ~at_home,
        "wrong_own_language": ~right & at_home,
        "wrong_other_language": ~right & ~at_home,
    }
    return {
        language: {name: float(values[chosen].mean()) for name, values in of_question.items()}
        for index, language in enumerate(languages)
        if (chosen := question_languages == index).any()
    }
