"""The Universal Declaration of Human Rights: 47 paragraphs, 78 languages, every ordered pair."""

from __future__ import annotations

from xalign_tasks.precision import PrecisionTask, precision_metadata

LANGUAGES = tuple(
    """afr-Latn amh-Ethi arb-Arab azj-Latn bel-Cyrl ben-Beng bul-Cyrl cat-Latn ceb-Latn ces-Latn cym-Latn dan-Latn
    deu-Latn eng-Latn epo-Latn est-Latn eus-Latn fin-Latn fra-Latn gle-Latn glg-Latn guj-Gujr hau-Latn heb-Hebr
    hin-Deva hrv-Latn hun-Latn hye-Armn ibo-Latn ilo-Latn ind-Latn isl-Latn ita-Latn jav-Latn jpn-Jpan kan-Knda
    kat-Geor kaz-Cyrl khm-Khmr kor-Hang lao-Laoo lit-Latn mal-Mlym mar-Deva mkd-Cyrl mya-Mymr nld-Latn nob-Latn
    npi-Deva pan-Guru pes-Arab pol-Latn por-Latn rus-Cyrl sin-Sinh slk-Latn slv-Latn som-Latn spa-Latn srp-Cyrl
    sun-Latn swe-Latn swh-Latn tam-Taml tel-Telu tgl-Latn tha-Thai tur-Latn ukr-Cyrl urd-Arab uzn-Latn vie-Latn
    xho-Latn yor-Latn zho-Hans zho-Hant zsm-Latn zul-Latn""".split()
)


class UDHRPrecision(PrecisionTask):
    """P@k on the paragraphs of the articles: few rows, but languages that other sets lack."""

    corpus_name = "udhr"
    metadata = precision_metadata(
        "UDHRPrecision",
        LANGUAGES,
        dataset={"path": "local/udhr", "revision": "local"},
        reference="https://www.ohchr.org/en/human-rights/universal-declaration",
        license="not specified",
    )
