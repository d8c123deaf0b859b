"""Canonical language codes, ``deu-Latn`` (ISO 639-3, ISO 15924), and conversions from other codes.

The canonical code is FLORES-200's with a hyphen, which is also mteb's form: Standard Arabic is ``arb-Arab``
(not ``ara``), Mandarin ``zho-Hans``, Malay ``zsm-Latn``, Persian ``pes-Arab``. A language outside FLORES-200 has its
ISO 639-3 code and its likely script according to CLDR. The tables are in ``languages.toml``.
"""

import difflib
import re
import tomllib
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple

import langcodes

from xalign_models.errors import LanguageError

LanguageText = tuple[str, str | None]
"""A text and the canonical code of its language, None if it is unknown."""


class TaggedText(NamedTuple):
    """A text and the canonical code of its language; the fields are named like the keys of a model's input."""

    text: str
    lang: str


_TABLES = tomllib.loads(files(__package__).joinpath("languages.toml").read_text(encoding="utf-8"))

FLORES_200 = tuple(_TABLES["flores_200"].split())
"""The canonical codes of the languages of FLORES-200."""
_FLORES_SCRIPTS = {code[:3]: [of[4:] for of in FLORES_200 if of[:3] == code[:3]] for code in FLORES_200}
BEYOND_FLORES = tuple(_TABLES["beyond_flores"].split())
"""The canonical codes of the other languages of NTREX-128 and of LASER's Tatoeba test."""

_INDIVIDUAL: dict[str, str] = _TABLES["individual"]
"""Macrolanguages and alternative codes -> the individual language that FLORES-200 means by them."""
_SCRIPTS: dict[str, str] = _TABLES["scripts"]
"""Scripts of the corpora that are not CLDR's likely script."""
_REGION_SCRIPTS = {**dict.fromkeys([("zho", "TW"), ("zho", "HK"), ("zho", "MO")], "Hant"), ("srp", "ME"): "Latn"}
_LAZADA: dict[str, str] = _TABLES["lazada"]
_ISO_639_1_OF: dict[str, str] = _TABLES["iso_639_1"]
_NO_LANGUAGE = {"mis", "mul", "und", "zxx"}
"""Codes for an uncoded language, several languages, an unknown one and none."""
_SHAPE = re.compile(
    r"^(?P<language>[A-Za-z]{2,3})(?:[-_](?P<script>[A-Za-z]{4}))?(?:[-_](?P<region>[A-Za-z]{2}|\d{3}))?$"
)


def _unknown(code: str, known: tuple[str, ...], scheme: str) -> LanguageError:
    near = list[str]()
    if not scheme:
        with suppress(LookupError, LanguageError):
            near = [canonical(str(langcodes.find(code)))]  # a name, such as German
    near = (
        near or difflib.get_close_matches(code, known, n=3, cutoff=0.5) or [k for k in known if k[:2] == code[:2]][:3]
    )
    hint = f"did you mean {', '.join(near)}?" if near else f"use a code such as {', '.join(known[:3])}."
    return LanguageError(f"Unknown {scheme + ' ' if scheme else ''}language code {code!r}; {hint}")


@cache
def canonical(code: str) -> str:
    """The canonical form of any unambiguous language code.

    Reads canonical codes (``deu-Latn``), FLORES-200 (``deu_Latn``), ISO 639-3 and Tatoeba (``deu``, ``cmn``), ISO 639-2
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


def canonical_codes(codes: str | Iterable[str]) -> list[str]:
    """The canonical forms of codes, in a list or with commas between them; errors are those of :func:`canonical`."""
    return [canonical(code) for code in (codes.split(",") if isinstance(codes, str) else codes)]


def match(code: str, known: Sequence[str]) -> str:
    """The element of ``known`` that a code denotes, or else the code: ``de``, ``deu`` and ``de-DE`` match ``deu-Latn``.

    The code has any form that :func:`canonical` accepts, or is in ``known``, which may contain any strings.

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
    likely = langcodes.Language.get(language).maximize().script or "Latn"
    scripts = _FLORES_SCRIPTS.get(language, [likely])
    return likely if likely in scripts else scripts[0]


def is_canonical(text: str) -> bool:
    """Whether a text has the form of a canonical code, ``deu-Latn``, even if no such language exists."""
    return re.fullmatch(r"[a-z]{3}-[A-Z][a-z]{3}", text) is not None


@cache
def _is_language(alpha3: str) -> bool:
    return alpha3 in _FLORES_SCRIPTS or not langcodes.Language.get(alpha3).display_name().startswith("Unknown language")


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


def spellings(code: str) -> set[str]:
    """Other codes of ``deu-Latn``: ``deu_Latn``, ``deu``, ``ger``, ``de``, ``de-Latn``; with a region if it matters."""
    language, script = code.split("-")
    names = {language, to_iso639_1(code), *(name for name, meant in _INDIVIDUAL.items() if meant == language)}
    with suppress(LookupError):
        names.add(langcodes.Language.get(language).to_alpha3("B"))
    regions = [region for (of, region), used in _REGION_SCRIPTS.items() if f"{of}-{used}" == code]
    forms = {form for name in names if name for form in (name, *(f"{name}-{end}" for end in (script, *regions)))}
    return {to_flores(code), *(form for form in forms if canonical(form) == code)}


@cache
def display_name(code: str) -> str:
    """``deu-Latn`` -> ``German``, with the script if FLORES-200 has several for the language."""
    language, _, script = code.partition("-")
    name = {"zho": "Chinese", "ber": "Berber", "tgl": "Tagalog"}.get(language) or langcodes.get(language).display_name()
    name = name.removesuffix(" (individual language)").removesuffix(" (macrolanguage)")
    several = len(_FLORES_SCRIPTS.get(language, ())) > 1
    return f"{name} ({langcodes.Language.make(script=script).script_name()})" if several else name
