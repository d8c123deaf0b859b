"""The declaration: the same paragraphs in every language, whatever its file is called and leaves out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from xalign_models import corpora
from xalign_models.errors import DataError
from xalign_tasks.facts import CODES
from xalign_tasks.parallel import UDHRPrecision


def test_files_have_variants_and_articles_that_some_divide_otherwise(workdir):
    folder = workdir / "data" / "udhr" / "paragraphs"
    folder.mkdir(parents=True)
    rows = ["pre.1\tx", "a01.1\t{} one", "a02.1\tx", "a02.2\tx", "a03.1\t{} three", "a18.1\tx"]
    for name in ("eng", "deu_1996", "por_BR", "por_PT", "pes_1", "azj_latn", "tha2", "tha", "yor"):
        kept = rows[1:2] + rows[4:5] if name == "yor" else rows
        (folder / f"{name}.tsv").write_text("\n".join(kept).format(name, name))
    corpus = corpora.load("udhr")
    assert {code: corpus.texts(code) for code in corpus.languages} == {
        code: [f"{name} one", f"{name} three"]
        for code, name in {
            "azj-Latn": "azj_latn", "deu-Latn": "deu_1996", "eng-Latn": "eng", "pes-Arab": "pes_1",
            "por-Latn": "por_BR", "tha-Thai": "tha", "yor-Latn": "yor",
        }.items()
    }  # fmt: skip
    with pytest.raises(DataError, match=r"Corpus 'udhr' is missing: set XALIGN_DATA to a folder that has udhr/"):
        corpora.load("udhr", workdir / "nowhere")


@pytest.mark.realdata
@pytest.mark.skipif(not (Path(os.environ.get("XALIGN_DATA", "-")) / "udhr").is_dir(), reason="XALIGN_DATA has no udhr")
def test_every_language_has_the_same_paragraphs():
    corpus = UDHRPrecision().corpus
    assert corpus.languages == CODES["udhr"]
    assert {len(rows) for rows in corpus.parallel(CODES["udhr"]).values()} == {47}
