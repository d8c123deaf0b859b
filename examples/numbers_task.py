"""A task and a benchmark of your own, in one file: finding number words in another language.

    xalign tasks --plugin numbers_task.py
    xalign run --plugin numbers_task.py -t NumberWords -m all-MiniLM-L6-v2
    xalign leaderboard --plugin numbers_task.py --benchmark "Example(numbers)"

Any mteb task will do. The base classes in :mod:`xalign_tasks` handle languages, encode every text once, and keep each
item's outcome for the significance tests: ``PrecisionTask`` looks for translations among all sentences of the other
language. Its subclasses need a text and metadata.

To list a task that is registered as a class, xalign has to import it, and mteb with it. To keep lists fast, register
its place and the facts that lists show instead: ``register.task("my_package.numbers:NumberWords", "NumberWords",
score=..., languages=4, subsets=12, description=...)``.
"""

import hashlib

from xalign_models import register
from xalign_models.corpora import Corpus
from xalign_models.corpora.base import from_columns
from xalign_tasks.precision import PrecisionTask, precision_metadata

WORDS = {
    "eng-Latn": "one two three four five six seven eight nine ten eleven twelve hundred thousand".split(),
    "deu-Latn": "eins zwei drei vier fünf sechs sieben acht neun zehn elf zwölf hundert tausend".split(),
    "fra-Latn": "un deux trois quatre cinq six sept huit neuf dix onze douze cent mille".split(),
    "spa-Latn": "uno dos tres cuatro cinco seis siete ocho nueve diez once doce cien mil".split(),
}


@register.task
class NumberWords(PrecisionTask):
    """P@1, P@5 and P@10 of finding a number word among the 14 of another language."""

    corpus_name = "number-words"
    narrows = False  # --languages does not filter its subsets
    metadata = precision_metadata(
        "NumberWords",
        WORDS,
        "P@1, P@5 and P@10 of finding a number word among the 14 of another language.",
        dataset={"path": "examples/number-words", "revision": "1"},  # the revision becomes the text's fingerprint
    )

    def local_corpus(self) -> Corpus:
        """The text. A task on a registered corpus names it in ``corpus_name`` and needs no such method."""
        identity = hashlib.sha256(repr(WORDS).encode()).hexdigest()
        self._corpus = from_columns(self.corpus_name, ("NumberWords",), WORDS, identity)
        return self._corpus


register.benchmark("Example(numbers)", ["NumberWords"], "An example of a benchmark, of one task")
