"""Prefixes of a text: the instruction, followed by ``Candidate:`` if the text is a passage."""

from __future__ import annotations


def query_prompt(instruction: str) -> str:
    r"""``{instruction}.\n``, with one full stop; nothing without an instruction."""
    return f"{instruction.rstrip().rstrip('.')}.\n" if instruction.strip() else ""


def passage_prompt(instruction: str) -> str:
    r"""``{instruction}. Candidate:\n``; nothing without an instruction."""
    return f"{instruction.rstrip().rstrip('.')}. Candidate:\n" if instruction.strip() else ""


_SIMILAR = "Retrieve semantically similar text."
_QUESTION = "Given a question, retrieve passages that answer the question."
_INSTRUCTIONS = {
    "Identify the category of the following passages.": "Clustering Classification MultilabelClassification TERRa",
    "Given a premise, retrieve a hypothesis that is entailed by the premise.": (
        "ArEntail XNLI XNLIV2 RTE3 FarsTail indonli Ocnli"
    ),
    "Classify the sentiment expressed in the given text as positive or negative.": (
        "ImdbClassification MultilingualSentimentClassification SentimentAnalysisHindi OnlineShopping Waimai"
    ),
    "Classify the sentiment expressed in the given text as positive, negative or neutral.": (
        "RuReviewsClassification AfriSentiClassification IndicSentimentClassification WisesightSentimentClassification "
        "VieStudentFeedbackClassification NaijaSenti JDReview MultilingualSentiment"
    ),
    "Classify the sentiment of a given tweet as either positive, negative, or neutral.": (
        "TweetSentimentExtractionClassification TweetSentimentClassification"
    ),
    "Classify the intent of the given utterance in task-oriented conversation.": (
        "MTOPDomainClassification MTOPIntentClassification"
    ),
    "Classify a given Amazon customer review text as either counterfactual or not-counterfactual.": (
        "AmazonCounterfactualClassification"
    ),
    "Classify Amazon reviews as positive or negative.": "AmazonPolarityClassification",
    "Classify the given Amazon review into one of five rating categories: Poor, Fair, Good, Very good, Excellent.": (
        "AmazonReviewsClassification"
    ),
    "Given a online banking query, find the corresponding intents.": "Banking77Classification",
    "Classify the emotion expressed in the given Twitter message into one of the six emotions:anger, fear, joy, love, "
    "sadness, and surprise.": "EmotionClassification",
    "Classify the emotion expressed in the given Twitter message into one of the following emotions: none, sympathy, "
    "anger, fear, joy, love, sadness, and surprise.": "TweetEmotionClassification",
    "Given a user utterance as query, find the user intents.": "MassiveIntentClassification",
    "Given a user utterance as query, find the user scenarios.": "MassiveScenarioClassification",
    "Classify the given comments as either toxic or not toxic.": "ToxicConversationsClassification",
    "Classify the following text into one of the following categories: Geopolitical, Personal, Political, Religious, "
    "or Gender abusive.": "BengaliHateSpeechClassification",
    "Classify the given text into one of the following categories: identity attack, insult, obscene, severe toxicity, "
    "threat, toxicity": "FinToxicityClassification",
    "Classify the sentiment of a given book review as either positive, negative, or neutral.": "FrenchBookReviews",
    "Classify the given text into one of the following categories: sarcasm or not sarcasm.": "KorSarcasmClassification",
}
"""The authors' instructions -> mteb's task types, and tasks whose instruction differs from that of their type."""

RELEASED = {
    "default": f"{_SIMILAR}.\n",
    "query": f"{_QUESTION}.\n",
    "document": f"{_QUESTION}. Candidate:\n",
    **{name: f"{instruction}.\n" for instruction, names in _INSTRUCTIONS.items() for name in names.split()},
}
"""Prompts of the authors' own evaluation, by task name, task type, ``query`` / ``document`` or ``default``.

As in the authors' training, a full stop follows even an instruction that ends in one. Nine English retrieval and
reranking tasks, such as FEVER, have an instruction of their own there; here they have the one for questions.
"""
