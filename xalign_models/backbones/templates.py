"""Prompts that surround a text, and PromptEOL's template in many languages, as data."""

from __future__ import annotations

SLOT = "[TEXT]"
"""Place of the text in a prompt that surrounds it; any other prompt precedes the text."""
_SIDE = "\x1d"
"""Delimiter of the side in a prompt: a control character that does not occur in prompts."""

TEMPLATES = {
    "arb-Arab": 'هذه الجملة: "[TEXT]" تعني بكلمة واحدة:"',
    "ben-Beng": 'এই বাক্যটির: "[TEXT]" এক শব্দে অর্থ:"',
    "bul-Cyrl": 'Това изречение: "[TEXT]" означава с една дума:"',
    "cat-Latn": 'Aquesta frase: "[TEXT]" significa en una paraula:"',
    "ces-Latn": 'Tato věta: "[TEXT]" znamená jedním slovem:"',
    "dan-Latn": 'Denne sætning: "[TEXT]" betyder med ét ord:"',
    "deu-Latn": 'Dieser Satz: "[TEXT]" bedeutet in einem Wort:"',
    "ell-Grek": 'Αυτή η πρόταση: "[TEXT]" σημαίνει με μία λέξη:"',
    "eng-Latn": 'This sentence : "[TEXT]" means in one word:"',
    "est-Latn": 'See lause: "[TEXT]" tähendab ühe sõnaga:"',
    "fin-Latn": 'Tämä lause: "[TEXT]" tarkoittaa yhdellä sanalla:"',
    "fra-Latn": 'Cette phrase : "[TEXT]" signifie en un mot :"',
    "heb-Hebr": 'המשפט הזה: "[TEXT]" פירושו במילה אחת:"',
    "hin-Deva": 'इस वाक्य: "[TEXT]" का एक शब्द में अर्थ है:"',
    "hun-Latn": 'Ez a mondat: "[TEXT]" egy szóban azt jelenti:"',
    "ind-Latn": 'Kalimat ini: "[TEXT]" berarti dalam satu kata:"',
    "ita-Latn": 'Questa frase: "[TEXT]" significa in una parola:"',
    "jpn-Jpan": 'この文:"[TEXT]"を一言で表すと:"',
    "kor-Hang": '이 문장: "[TEXT]"을(를) 한 단어로 표현하면:"',
    "mar-Deva": 'या वाक्याचा: "[TEXT]" एका शब्दात अर्थ:"',
    "nld-Latn": 'Deze zin: "[TEXT]" betekent in één woord:"',
    "nob-Latn": 'Denne setningen: "[TEXT]" betyr med ett ord:"',
    "pes-Arab": 'این جمله: "[TEXT]" در یک کلمه یعنی:"',
    "pol-Latn": 'To zdanie: "[TEXT]" oznacza jednym słowem:"',
    "por-Latn": 'Esta frase: "[TEXT]" significa em uma palavra:"',
    "ron-Latn": 'Această propoziție: "[TEXT]" înseamnă într-un cuvânt:"',
    "rus-Cyrl": 'Это предложение: "[TEXT]" означает одним словом:"',
    "spa-Latn": 'Esta frase: "[TEXT]" significa en una palabra:"',
    "swe-Latn": 'Den här meningen: "[TEXT]" betyder med ett ord:"',
    "swh-Latn": 'Sentensi hii: "[TEXT]" inamaanisha kwa neno moja:"',
    "tam-Taml": 'இந்த வாக்கியம்: "[TEXT]" ஒரே வார்த்தையில் குறிப்பது:"',
    "tel-Telu": 'ఈ వాక్యం: "[TEXT]" ఒక్క మాటలో అర్థం:"',
    "tgl-Latn": 'Ang pangungusap na ito: "[TEXT]" ay nangangahulugang sa isang salita:"',
    "tha-Thai": 'ประโยคนี้: "[TEXT]" มีความหมายในคำเดียวว่า:"',
    "tur-Latn": 'Bu cümle: "[TEXT]" tek kelimeyle şu anlama gelir:"',
    "ukr-Cyrl": 'Це речення: "[TEXT]" означає одним словом:"',
    "urd-Arab": 'اس جملے: "[TEXT]" کا ایک لفظ میں مطلب ہے:"',
    "vie-Latn": 'Câu này: "[TEXT]" có nghĩa trong một từ là:"',
    "zho-Hans": '这句话:"[TEXT]"用一个词来表达是:"',
    "zho-Hant": '這句話:"[TEXT]"用一個詞來表達是:"',
    "zsm-Latn": 'Ayat ini: "[TEXT]" bermaksud dalam satu perkataan:"',
}
"""PromptEOL's template by canonical language code. Each ends in the quote whose hidden state is the text's vector."""
ENGLISH = TEMPLATES["eng-Latn"]


def prompted(prompt: str, text: str) -> str:
    """The text in its prompt, at ``[TEXT]`` or else after the prompt; the text itself is not changed."""
    return prompt.replace(SLOT, text, 1) if SLOT in prompt else prompt + text


def with_side(side: str, prompt: str) -> str:
    """A prompt that carries the side, ``query`` or ``document``, of its texts; ``""`` is no side."""
    return f"{_SIDE}{side}{_SIDE}{prompt}" if side else prompt


def split_side(prompt: str) -> tuple[str, str]:
    """The inverse of :func:`with_side`."""
    if not prompt.startswith(_SIDE):
        return "", prompt
    _, side, plain = prompt.split(_SIDE, 2)
    return side, plain
