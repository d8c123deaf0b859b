"""NTREX-128: 1,997 sentences of news, 122 languages (regional variants count once), every ordered pair."""

from __future__ import annotations

from xalign_tasks.precision import PrecisionTask, precision_metadata

LANGUAGES = tuple(
    """afr-Latn als-Latn amh-Ethi arb-Arab azj-Latn bak-Cyrl bel-Cyrl bem-Latn ben-Beng bod-Tibt bos-Latn
    bul-Cyrl cat-Latn ces-Latn ckb-Arab cym-Latn dan-Latn deu-Latn div-Thaa dzo-Tibt ell-Grek eng-Latn est-Latn
    eus-Latn ewe-Latn fao-Latn fij-Latn fin-Latn fra-Latn fuv-Latn gaz-Latn gle-Latn glg-Latn guj-Gujr hau-Latn
    heb-Hebr hin-Deva hmn-Latn hrv-Latn hun-Latn hye-Armn ibo-Latn ind-Latn isl-Latn ita-Latn jpn-Jpan kan-Knda
    kat-Geor kaz-Cyrl khk-Cyrl khm-Khmr kin-Latn kir-Cyrl kmr-Latn kor-Hang lao-Laoo lit-Latn ltz-Latn lvs-Latn
    mal-Mlym mar-Deva mey-Latn mkd-Cyrl mlt-Latn mri-Latn mya-Mymr nde-Latn nld-Latn nno-Latn nob-Latn npi-Deva
    nso-Latn nya-Latn pan-Guru pbt-Arab pes-Arab plt-Latn pol-Latn por-Latn prs-Arab ron-Latn rus-Cyrl shi-Tfng
    sin-Sinh slk-Latn slv-Latn smo-Latn sna-Latn snd-Arab som-Latn spa-Latn srp-Cyrl srp-Latn ssw-Latn swe-Latn
    swh-Latn tah-Latn tam-Taml tat-Cyrl tel-Telu tgk-Cyrl tgl-Latn tha-Thai tir-Ethi ton-Latn tsn-Latn tuk-Latn
    tur-Latn uig-Arab ukr-Cyrl urd-Arab uzn-Latn ven-Latn vie-Latn wol-Latn xho-Latn yor-Latn yue-Hant zho-Hans
    zho-Hant zsm-Latn zul-Latn""".split()
)


class NTREXPrecision(PrecisionTask):
    """P@k on NTREX-128."""

    corpus_name = "ntrex"
    metadata = precision_metadata(
        "NTREXPrecision",
        LANGUAGES,
        dataset={"path": "mteb/NTREXBitextMining", "revision": "66b8b27efc99658903127730575e9fa0cb9f075c"},
        reference="https://github.com/MicrosoftTranslator/NTREX",
        license="cc-by-sa-4.0",
        adapted_from=["NTREXBitextMining"],
    )
