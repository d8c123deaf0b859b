"""Canonical language codes, ``deu-Latn`` (ISO 639-3, ISO 15924), and conversions from other codes.

The canonical code is the one of FLORES-200 with a hyphen, which is also mteb's form: Standard Arabic is ``arb-Arab``
(not ``ara``), Mandarin ``zho-Hans``, Malay ``zsm-Latn``, Persian ``pes-Arab``. A language outside FLORES-200 has its
ISO 639-3 code and its likely script according to CLDR.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache, lru_cache
from typing import NamedTuple

import langcodes

from xalign_models.errors import LanguageError

LanguageText = tuple[str, str | None]
"""A text and the canonical code of its language, None if it is unknown."""


class TaggedText(NamedTuple):
    """A text and the canonical code of its language; the fields are named like the keys of a model's input."""

    text: str
    lang: str


FLORES_200 = tuple(
    """ace-Arab ace-Latn acm-Arab acq-Arab aeb-Arab afr-Latn ajp-Arab aka-Latn als-Latn amh-Ethi apc-Arab arb-Arab
    arb-Latn ars-Arab ary-Arab arz-Arab asm-Beng ast-Latn awa-Deva ayr-Latn azb-Arab azj-Latn bak-Cyrl bam-Latn
    ban-Latn bel-Cyrl bem-Latn ben-Beng bho-Deva bjn-Arab bjn-Latn bod-Tibt bos-Latn bug-Latn bul-Cyrl cat-Latn
    ceb-Latn ces-Latn cjk-Latn ckb-Arab crh-Latn cym-Latn dan-Latn deu-Latn dik-Latn dyu-Latn dzo-Tibt ell-Grek
    eng-Latn epo-Latn est-Latn eus-Latn ewe-Latn fao-Latn fij-Latn fin-Latn fon-Latn fra-Latn fur-Latn fuv-Latn
    gaz-Latn gla-Latn gle-Latn glg-Latn grn-Latn guj-Gujr hat-Latn hau-Latn heb-Hebr hin-Deva hne-Deva hrv-Latn
    hun-Latn hye-Armn ibo-Latn ilo-Latn ind-Latn isl-Latn ita-Latn jav-Latn jpn-Jpan kab-Latn kac-Latn kam-Latn
    kan-Knda kas-Arab kas-Deva kat-Geor kaz-Cyrl kbp-Latn kea-Latn khk-Cyrl khm-Khmr kik-Latn kin-Latn kir-Cyrl
    kmb-Latn kmr-Latn knc-Arab knc-Latn kon-Latn kor-Hang lao-Laoo lij-Latn lim-Latn lin-Latn lit-Latn lmo-Latn
    ltg-Latn ltz-Latn lua-Latn lug-Latn luo-Latn lus-Latn lvs-Latn mag-Deva mai-Deva mal-Mlym mar-Deva min-Arab
    min-Latn mkd-Cyrl mlt-Latn mni-Beng mos-Latn mri-Latn mya-Mymr nld-Latn nno-Latn nob-Latn npi-Deva nqo-Nkoo
    nso-Latn nus-Latn nya-Latn oci-Latn ory-Orya pag-Latn pan-Guru pap-Latn pbt-Arab pes-Arab plt-Latn pol-Latn
    por-Latn prs-Arab quy-Latn ron-Latn run-Latn rus-Cyrl sag-Latn san-Deva sat-Olck scn-Latn shn-Mymr sin-Sinh
    slk-Latn slv-Latn smo-Latn sna-Latn snd-Arab som-Latn sot-Latn spa-Latn srd-Latn srp-Cyrl ssw-Latn sun-Latn
    swe-Latn swh-Latn szl-Latn tam-Taml taq-Latn taq-Tfng tat-Cyrl tel-Telu tgk-Cyrl tgl-Latn tha-Thai tir-Ethi
    tpi-Latn tsn-Latn tso-Latn tuk-Latn tum-Latn tur-Latn twi-Latn tzm-Tfng uig-Arab ukr-Cyrl umb-Latn urd-Arab
    uzn-Latn vec-Latn vie-Latn war-Latn wol-Latn xho-Latn ydd-Hebr yor-Latn yue-Hant zho-Hans zho-Hant zsm-Latn
    zul-Latn""".split()
)
"""The canonical codes of the languages of FLORES-200."""

BEYOND_FLORES = tuple(
    """ang-Latn arq-Arab ber-Latn bre-Latn cbk-Latn cha-Latn cor-Latn csb-Latn div-Thaa dsb-Latn dtp-Latn fry-Latn
    gsw-Latn hmn-Latn hsb-Latn ido-Latn ile-Latn ina-Latn kzj-Latn lat-Latn lfn-Latn max-Latn mey-Latn mhr-Cyrl nde-Latn
    nds-Latn nov-Latn orv-Latn pam-Latn pms-Latn shi-Tfng srp-Latn swg-Latn tah-Latn ton-Latn tzl-Latn ven-Latn
    wuu-Hans""".split()
)
"""The canonical codes of the other languages of NTREX-128 and of LASER's Tatoeba test."""

# Macrolanguages and alternative codes, and the individual language that FLORES-200 (and a reader) means by them. fuc,
# NTREX-128's Pulaar, is not fuv; it stays here because the revisions of that corpus and of all results depend on it.
_INDIVIDUAL = {
    "ara": "arb", "aze": "azj", "cmn": "zho", "ekk": "est", "fas": "pes", "ful": "fuv", "fuc": "fuv", "fil": "tgl",
    "kur": "kmr", "lav": "lvs", "mlg": "plt", "mon": "khk", "mly": "zsm", "msa": "zsm", "nep": "npi", "nor": "nob",
    "ori": "ory", "orm": "gaz", "pus": "pbt", "que": "quy", "sqi": "als", "swa": "swh", "uzb": "uzn", "yid": "ydd",
    "hbs": "hrv", "aym": "ayr", "din": "dik", "kau": "knc",
}  # fmt: skip
# Scripts of the corpora that are not CLDR's likely script.
_SCRIPTS = {"kor": "Hang", "tzm": "Tfng", "arb": "Arab", "uig": "Arab", "pbt": "Arab", "snd": "Arab", "crh": "Latn"}
_REGION_SCRIPTS = {**dict.fromkeys([("zho", "TW"), ("zho", "HK"), ("zho", "MO")], "Hant"), ("srp", "ME"): "Latn"}
_LAZADA = {
    "bd": "ben-Beng",
    "id": "ind-Latn",
    "my": "zsm-Latn",
    "pk": "urd-Arab",
    "th": "tha-Thai",
    "ph": "tgl-Latn",
    "vn": "vie-Latn",
}
_ISO_639_1_OF = {"nob": "no", "pbt": "ps", "quy": "qu", "tgl": "tl", "twi": "tw", "zho": "zh"}
_NO_LANGUAGE = {"mis", "mul", "und", "zxx"}
"""Codes for an uncoded language, several languages, an unknown one and none."""
_SHAPE = re.compile(
    r"^(?P<language>[A-Za-z]{2,3})(?:[-_](?P<script>[A-Za-z]{4}))?(?:[-_](?P<region>[A-Za-z]{2}|\d{3}))?$"
)


def _unknown(code: str, known: tuple[str, ...], scheme: str) -> LanguageError:
    near = difflib.get_close_matches(code, known, n=3, cutoff=0.5) or [k for k in known if k[:2] == code[:2]][:3]
    hint = f"did you mean {', '.join(near)}?" if near else f"use a code such as {', '.join(known[:3])}."
    return LanguageError(f"Unknown {scheme + ' ' if scheme else ''}language code {code!r}; {hint}")


@cache
def canonical(code: str) -> str:
    """The canonical form of any unambiguous language code.

    Takes canonical codes (``deu-Latn``), FLORES-200 (``deu_Latn``), ISO 639-3 and Tatoeba (``deu``, ``cmn``), ISO 639-2
    (``ger``), NTREX (``srp-Cyrl``, ``zho-TW``), ISO 639-1 (``de``) and BCP 47 with a region (``pt-BR``: Portuguese).
    Lazada's two-letter codes name countries and need :func:`from_lazada`.

    Raises:
        LanguageError: No language has this code; the message suggests similar ones.
    """
    match = _SHAPE.match(code.strip())
    if match is None:
        raise _unknown(code, FLORES_200, "")
    tag = langcodes.Language.get(match["language"].lower())
    language = match["language"].lower()
    try:
        if len(language) == 2 or tag.to_alpha3("B") == language:  # de; ger, the bibliographic code beside deu
            language = tag.to_alpha3()
    except LookupError:
        if len(language) == 2:
            raise _unknown(code, FLORES_200, "ISO 639-1") from None
    if language in _NO_LANGUAGE or (language not in _INDIVIDUAL and not _is_language(language)):
        raise _unknown(code, FLORES_200, "ISO 639-3")
    language = _INDIVIDUAL.get(language, language)
    script = match["script"].title() if match["script"] else tag.script  # `sh` is Serbian in Latin letters
    if script and f"{language}-{script}" not in FLORES_200 and not _is_script(script):
        raise _unknown(code, FLORES_200, "")
    return f"{language}-{script or _likely_script(language, (match['region'] or '').upper())}"


def match(code: str, known: Sequence[str]) -> str:
    """The element of ``known`` that a code means, else the code: ``de``, ``deu`` and ``de-DE`` match ``deu-Latn``.

    The code has any form that :func:`canonical` takes, or is in ``known``, which may contain any strings.

    Raises:
        LanguageError: The code has no script, and ``known`` has several for the language but not the usual one.
    """
    return code if code in known else _match(code, tuple(known))


@lru_cache(maxsize=4096)
def _match(code: str, known: tuple[str, ...]) -> str:
    try:
        canonical_code = canonical(code)
    except LanguageError:
        return code
    by_code: dict[str, str] = {}
    for name in known:
        with suppress(LanguageError):
            by_code.setdefault(canonical(name), name)
    if canonical_code in by_code:
        return by_code[canonical_code]
    form = _SHAPE.match(code.strip())
    if form is None or form["script"] or (form["region"] and canonical_code[:3] == "zho"):
        return code
    candidates = [name for canon, name in by_code.items() if canon[:3] == canonical_code[:3]]
    if len(candidates) > 1:
        raise LanguageError(f"Language code {code!r} is ambiguous here; choose one of {', '.join(sorted(candidates))}.")
    return candidates[0] if candidates else code


def _likely_script(language: str, region: str) -> str:
    if (language, region) in _REGION_SCRIPTS:
        return _REGION_SCRIPTS[language, region]
    if language in _SCRIPTS:
        return _SCRIPTS[language]
    flores = [code for code in FLORES_200 if code.startswith(f"{language}-")]
    likely = langcodes.Language.get(language).maximize().script or "Latn"
    return likely if not flores or f"{language}-{likely}" in flores else flores[0].split("-")[1]


def is_canonical(text: str) -> bool:
    """Whether a text has the form of a canonical code, ``deu-Latn``, even if no such language exists."""
    return re.fullmatch(r"[a-z]{3}-[A-Z][a-z]{3}", text) is not None


@cache
def _is_language(alpha3: str) -> bool:
    known = {code.split("-")[0] for code in FLORES_200}
    return alpha3 in known or not langcodes.Language.get(alpha3).display_name().startswith("Unknown language")


@cache
def _is_script(script: str) -> bool:
    return not langcodes.Language.make(script=script).script_name().startswith("Unknown")


def from_flores(code: str) -> str:
    """``deu_Latn`` -> ``deu-Latn``; only languages of FLORES-200.

    Raises:
        LanguageError: FLORES-200 has no such language.
    """
    hyphenated = code.replace("_", "-")
    if hyphenated not in FLORES_200:
        raise _unknown(code, tuple(known.replace("-", "_") for known in FLORES_200), "FLORES-200")
    return hyphenated


def from_tatoeba(code: str) -> str:
    """The three-letter code of a Tatoeba file (``ara``, ``cmn``, ``ber``) -> canonical."""
    return canonical(code)


def from_iso639_1(code: str) -> str:
    """``de`` -> ``deu-Latn``; ``zh`` is simplified Chinese.

    Raises:
        LanguageError: Not a two-letter code of ISO 639-1.
    """
    known = tuple(sorted({two for language in FLORES_200 if (two := to_iso639_1(language))}))
    if len(code) != 2:
        raise _unknown(code, known, "ISO 639-1")
    return canonical(code)


def from_sts17(track: str) -> tuple[str, str]:
    """A track of STS17 (``es-en``) -> the canonical codes of its two sides, first column first."""
    first, separator, second = track.partition("-")
    if not separator:
        raise LanguageError(f"{track!r} is not a track of STS17, such as en-en, es-en or ar-ar.")
    return from_iso639_1(first), from_iso639_1(second)


def from_lazada(locale: str) -> str:
    """A Lazada locale (a country: ``my`` is Malaysia, not Burmese) -> canonical.

    Raises:
        LanguageError: Not one of bd, id, my, pk, th, ph, vn.
    """
    if locale.lower() not in _LAZADA:
        raise _unknown(locale, tuple(_LAZADA), "Lazada locale")
    return _LAZADA[locale.lower()]


def to_flores(code: str) -> str:
    """``deu-Latn`` -> ``deu_Latn``, the form of FLORES-200's files and of mteb's columns."""
    return canonical(code).replace("-", "_")


@cache
def to_iso639_1(code: str) -> str | None:
    """``deu-Latn`` -> ``de``; None for a language without a two-letter code."""
    language = code.split("-", maxsplit=1)[0]
    if language in _ISO_639_1_OF:
        return _ISO_639_1_OF[language]
    tag = langcodes.standardize_tag(language, macro=True)
    return tag if len(tag) == 2 else None


@cache
def display_name(code: str) -> str:
    """``deu-Latn`` -> ``German``, with the script if FLORES-200 has several for the language."""
    language, _, script = code.partition("-")
    name = {"zho": "Chinese", "ber": "Berber", "tgl": "Tagalog"}.get(language) or langcodes.get(language).display_name()
    name = name.removesuffix(" (individual language)").removesuffix(" (macrolanguage)")
    several = sum(known.startswith(f"{language}-") for known in FLORES_200) > 1
    return f"{name} ({langcodes.Language.make(script=script).script_name()})" if several else name
