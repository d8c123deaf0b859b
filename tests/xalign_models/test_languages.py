"""Languages: one code each, every publisher's code leads to it, and an unknown code is told the nearest ones."""

from __future__ import annotations

import pytest

from xalign_models.errors import LanguageError
from xalign_models.languages import (
    BEYOND_FLORES,
    FLORES_200,
    canonical,
    display_name,
    from_flores,
    from_iso639_1,
    from_lazada,
    from_sts17,
    match,
    spellings,
    to_flores,
    to_iso639_1,
)

# XTREME's Tatoeba-36, as the LSAR paper lists them, and the FLORES-200 codes of the same languages.
TATOEBA_36 = (
    "afr ara bul ben deu ell spa est eus pes fin fra heb hin hun ind ita jpn jav kat kaz kor mal mar nld por rus \
swh tam tel tha tgl tur urd vie cmn".split()
)
FLORES_36 = (
    "afr_Latn arb_Arab bul_Cyrl ben_Beng deu_Latn ell_Grek spa_Latn est_Latn eus_Latn pes_Arab fin_Latn fra_Latn \
heb_Hebr hin_Deva hun_Latn ind_Latn ita_Latn jpn_Jpan jav_Latn kat_Geor kaz_Cyrl kor_Hang mal_Mlym mar_Deva nld_Latn \
por_Latn rus_Cyrl swh_Latn tam_Taml tel_Telu tha_Thai tgl_Latn tur_Latn urd_Arab vie_Latn zho_Hans".split()
)
NTREX = {
    "deu": "deu-Latn", "srp-Cyrl": "srp-Cyrl", "srp-Latn": "srp-Latn", "aze-Latn": "azj-Latn", "por-BR": "por-Latn",
    "zho-CN": "zho-Hans", "zho-TW": "zho-Hant", "msa": "zsm-Latn", "fil": "tgl-Latn", "mon": "khk-Cyrl",
    "fas": "pes-Arab", "swa": "swh-Latn", "nep": "npi-Deva", "pus": "pbt-Arab", "orm": "gaz-Latn", "tir": "tir-Ethi",
    "ckb-Arab": "ckb-Arab", "shi": "shi-Tfng", "eng-GB": "eng-Latn", "mlg": "plt-Latn", "sqi": "als-Latn",
}  # fmt: skip
BIBLIOGRAPHIC = {"ger": "deu", "fre": "fra", "chi": "zho", "per": "pes", "alb": "als", "gre": "ell", "bur": "mya"}


@pytest.mark.parametrize("code", FLORES_200)
def test_a_flores_code_is_canonical_in_every_spelling(code: str) -> None:
    assert canonical(code) == code
    assert canonical(code.replace("-", "_")) == code
    assert canonical(code.lower()) == code
    assert from_flores(to_flores(code)) == code
    assert display_name(code)


def test_codes_and_names_of_languages_differ() -> None:
    assert len({display_name(code) for code in FLORES_200}) == len(set(FLORES_200)) == len(FLORES_200)


def test_a_three_letter_code_is_a_language_of_flores_where_it_has_it() -> None:
    for code in FLORES_200:
        assert canonical(code.split("-")[0]) in [one for one in FLORES_200 if one[:3] == code[:3]]
    assert canonical("zho") == "zho-Hans"
    assert canonical("arb") == "arb-Arab"
    assert canonical("kor") == "kor-Hang"


def test_two_letter_codes_round_trip_but_for_scripts() -> None:
    for code in FLORES_200:
        if short := to_iso639_1(code):
            assert len(short) == 2
            assert from_iso639_1(short)[:3] == code[:3]
    assert {to_iso639_1(code) for code in ("deu-Latn", "zho-Hant", "arb-Arab", "zsm-Latn", "pbt-Arab")} == {
        "de",
        "zh",
        "ar",
        "ms",
        "ps",
    }
    assert to_iso639_1("ceb-Latn") is None


@pytest.mark.parametrize(("tatoeba", "flores"), zip(TATOEBA_36, FLORES_36, strict=True))
def test_tatoeba_codes(tatoeba: str, flores: str) -> None:
    assert to_flores(canonical(tatoeba)) == flores


def test_tatoeba_codes_outside_flores_keep_their_code() -> None:
    assert [canonical(code)[:3] for code in ("ber", "dtp", "nds", "cbk", "pms")] == [
        "ber",
        "dtp",
        "nds",
        "cbk",
        "pms",
    ]


@pytest.mark.parametrize(("code", "expected"), NTREX.items())
def test_ntrex_codes(code: str, expected: str) -> None:
    assert canonical(code) == expected


@pytest.mark.parametrize(("code", "language"), BIBLIOGRAPHIC.items())
def test_bibliographic_codes_are_their_language(code: str, language: str) -> None:
    assert canonical(code)[:3] == language


@pytest.mark.parametrize(
    ("code", "expected"),
    [("de", "deu-Latn"), ("pt-BR", "por-Latn"), ("zh-TW", "zho-Hant"), ("zh_Hant", "zho-Hant"), ("sr-Latn", "srp-Latn"),
     ("my", "mya-Mymr"), ("no", "nob-Latn"), (" fa ", "pes-Arab"), ("pt-br", "por-Latn"), ("PT_br", "por-Latn"),
     ("de-DE", "deu-Latn"), ("zh-CN", "zho-Hans"), ("zh-tw", "zho-Hant"), ("zh-Hant-hk", "zho-Hant"),
     ("es-419", "spa-Latn")],
)  # fmt: skip
def test_bcp_47_codes(code: str, expected: str) -> None:
    assert canonical(code) == expected


def test_lazada_locales_are_countries() -> None:
    assert from_lazada("my") == "zsm-Latn" != from_iso639_1("my")
    assert {from_lazada(locale) for locale in ("bd", "id", "pk", "TH", "ph", "vn")} == {
        "ben-Beng",
        "ind-Latn",
        "urd-Arab",
        "tha-Thai",
        "tgl-Latn",
        "vie-Latn",
    }
    with pytest.raises(LanguageError, match="Lazada locale"):
        from_lazada("de")


def test_sts17_tracks_name_two_languages_in_order() -> None:
    assert from_sts17("es-en") == ("spa-Latn", "eng-Latn")
    assert from_sts17("ar-ar") == ("arb-Arab", "arb-Arab")
    with pytest.raises(LanguageError, match="not a track"):
        from_sts17("esen")


@pytest.mark.parametrize("code", ["deuu-Latn", "deu_Latm", "deu-Zzzz", "German"])
def test_an_unknown_code_is_told_the_nearest(code: str) -> None:
    with pytest.raises(LanguageError, match="deu-Latn"):
        canonical(code)


@pytest.mark.parametrize("code", ["", "xx", "qaa", "und", "english", "deu-Latn-x", "../deu", "d", "zz-ZZ"])
def test_what_is_no_language_is_an_error(code: str) -> None:
    with pytest.raises(LanguageError, match="language code"):
        canonical(code)


def test_publishers_take_their_own_codes_only() -> None:
    with pytest.raises(LanguageError, match="FLORES-200.*deu_Latn"):
        from_flores("deu_Lat")
    with pytest.raises(LanguageError, match="ISO 639-1"):
        from_iso639_1("deu")


def test_names_say_the_script_where_there_are_several() -> None:
    assert display_name("deu-Latn") == "German"
    assert display_name("zho-Hant") == "Chinese (Traditional)"
    assert display_name("ace-Arab") == "Acehnese (Arabic)"


@pytest.mark.parametrize("code", ["de", "deu", "ger", "de-DE", "de_de", "deu_Latn", "deu-Latn"])
def test_a_code_in_any_form_is_the_known_one(code: str) -> None:
    assert match(code, ("eng-Latn", "deu-Latn")) == "deu-Latn"
    assert match(code, ("en", "de")) == "de"


def test_what_is_known_by_any_string_is_that_string() -> None:
    assert match("klingon", ("klingon", "de")) == "klingon"
    assert match("klingon", ("de", "en")) == "klingon"
    assert match("de", ("de", "deu-Latn")) == "de"


def test_a_code_without_a_script_takes_the_one_that_is_known_and_is_ambiguous_among_several() -> None:
    assert match("sr", ("srp-Latn", "eng-Latn")) == "srp-Latn"
    assert match("sr", ("srp-Latn", "srp-Cyrl")) == "srp-Cyrl"
    assert match("srp-Cyrl", ("srp-Latn", "eng-Latn")) == "srp-Cyrl"  # which is not known: its caller says so
    assert match("zh-CN", ("zho-Hant",)) == "zh-CN"
    with pytest.raises(LanguageError, match="'ks' is ambiguous here; choose one of kas-Latn, kas-Xsux"):
        match("ks", ("kas-Latn", "kas-Xsux"))


@pytest.mark.parametrize("code", ["mul", "mis", "zxx", "und", "mul-Latn"])
def test_codes_that_name_no_language_are_refused(code):
    with pytest.raises(LanguageError, match="Unknown"):
        canonical(code)


def test_an_old_code_that_implies_a_script_has_it():
    assert canonical("sh") == "srp-Latn"
    assert canonical("sh-Cyrl") == canonical("sr") == "srp-Cyrl"


def test_spellings_denote_the_same_language():
    for code in (*FLORES_200, *BEYOND_FLORES):
        assert {canonical(form) for form in spellings(code)} == {code}
    assert {"zh-TW", "zh-Hant", "cmn-Hant", "zho_Hant"} <= spellings("zho-Hant")
    assert {"de", "deu", "ger", "de-Latn"} <= spellings("deu-Latn")
