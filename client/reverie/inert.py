"""Makes text inert for a language model: nothing in it is invisible, and no control token of a chat template is whole.

Chat templates separate turns by tokens such as `<|im_start|>` or `[INST]`. If a text contains one, a model server may
take it for a real one, and the text after it for somebody else's words. So a backslash is put after the token's first
character, which people can still read. All other visible characters stay as they are.
"""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from typing import Final

# Everything that some reader treats as a line end.
LINE_END: Final = re.compile("\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")

_EMOJI: Final = (
    "\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u2460-\u24ff\u25a0-\u27bf\u2900-\u297f\u2b00-\u2bff"
    "\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
# Arabic, Syriac, the scripts of India and its neighbours, Khmer and Mongolian: joiners shape their words.
_JOINING: Final = (
    "\u0620-\u065f\u066e-\u06d3\u06d5\u06fa-\u06ff\u0710-\u07ff\u0840-\u08ff\u0900-\u0dff\u0e80-\u0fff\u1000-\u109f"
    "\u1780-\u17b3\u17b6-\u17d3\u1820-\u18aa\ufb50-\ufdcf\ufdf0-\ufdff\ufe70-\ufefc"
)
# The flags of England, Scotland and Wales: the only ones made of tag characters.
_FLAGS: Final = "|".join(
    "\U0001f3f4" + "".join(chr(0xE0000 + ord(letter)) for letter in f"gb{region}") + "\U000e007f"
    for region in ("eng", "sct", "wls")
)
# Invisible characters that change what people see, such as variation selectors after emojis: one, in the right place.
_KEPT: Final = "|".join(
    (
        _FLAGS,
        f"(?<=[{_EMOJI}])[\ufe0e\ufe0f]",
        "(?<=[0-9#*])\ufe0f(?=\u20e3)",
        f"(?:(?<=[{_EMOJI}])|(?<=[{_EMOJI}]\ufe0f))\u200d(?=[{_EMOJI}])",
        f"(?<=[{_JOINING}])[\u200c\u200d](?![\u200c\u200d])",
        "(?<=[\u1820-\u18aa])[\u180b-\u180e](?=[\u1820-\u18aa])",
    )
)
# Control characters other than tab and line feed; Unicode's Default_Ignorable_Code_Point (DerivedCoreProperties.txt
# 16.0), among them zero-width characters, bidirectional controls, tag characters, variation selectors and Hangul
# fillers; annotation marks, the blank Braille pattern, and code points that are no characters.
_INVISIBLE: Final = (
    "\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u202a-\u202e\u2060-\u206f\u2800\u3164\ufdd0-\ufdef\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    + "".join(f"{chr(plane + 0xFFFE)}{chr(plane + 0xFFFF)}" for plane in range(0x10000, 0x110000, 0x10000))
)
_HIDDEN: Final = re.compile(f"({_KEPT})|[{_INVISIBLE}]")

# Bars, brackets and marks that look like those of control tokens, and that compatibility forms (NFKC) do not cover.
_LOOKALIKES: Final = {
    "|": "\u00a6\u2502\u2503\u2506\u2507\u250a\u250b\u2551\u2758\u2759\u275a\u2223\u2225"
    "\u2016\u01c0\u01c1\u2160\u2d4f\uffe8\u0964\u0965\ufe31\ufe33",
    "<": "\u2039\u3008\u27e8\u3008\u276c\u276e\u2770\u02c2\u1438\u227a\u29fc",
    ">": "\u203a\u3009\u27e9\u3009\u276d\u276f\u2771\u02c3\u1433\u227b\u29fd",
    "[": "\u3010\u3014\u3016\u301a\u27e6\u298b\u2045",
    "]": "\u3011\u3015\u3017\u301b\u27e7\u298c\u2046",
    "/": "\u2215\u2044\u2571\u29f8",
    "_": "\u2581\u2017",
    ":": "\ufe30\u02d0\u02f8\u2236",
    "#": "\u266f",
}
# The blocks that have compatibility forms of ASCII characters: small, full-width, enclosed, raised, mathematical.
_COMPATIBILITY: Final = (
    (0x2070, 0x20A0),
    (0x2100, 0x2150),
    (0x2460, 0x2500),
    (0xFE10, 0xFE70),
    (0xFF01, 0xFF5F),
    (0x1D400, 0x1D800),
)

_ROLES: Final = (
    "system|users?|assistants?|humans?|developers?|model|tool|function|observation|ipython|bot|ai|agent|chatbot|prompter"
    "|gpt|roles?|speaker|turn|messages?|prompt|conversation|instructions?|input|output|response|query|question|answer"
    "|\u7528\u6237|\u52a9\u624b|\u7cfb\u7edf"
)
_NAMES: Final = (
    f"{_ROLES}|s|bos|eos|pad|unk|mask|cls|sep|eot|eod|eoh|eoa|sop|eop|gmask|smask|pre|suf|mid|img|image|audio|video"
    "|think|thinking|thought|tools|invoke|parameter|antml|result|results|document|documents|context|inst|sys"
    "|filename|reponame|endoftext|startoftext|fim|unused[0-9]+|reserved[0-9]+|tokens"
)
# Names in square brackets, of Mistral, Llama 2, GLM, Kimi and BERT, and roles.
_BRACKETED: Final = (
    f"{_ROLES}|inst|sys|system_prompt|available_tools|tool_calls|tool_results|tool_content|call_id|args|img|img_break|img_end"
    "|image|audio|begin_audio|transcribe|think|prefix|middle|suffix|model_settings|ref|control_[0-9]+|unused_?[0-9]+"
    "|g?mask|smask|cls|sep|pad|unk|bos|eos|eot|multimodal|start_header_id|end_header_id|extra_id_[0-9]+|round [0-9]+"
)
_BLANKS: Final = r"[ \t]{0,3}"
# Matched in a text whose lookalikes are folded. Every match ends where the
# backslash goes: after the first character, or before a colon. Each pattern takes linear time.
_CONTROL: Final = re.compile(
    "|".join(
        (
            rf"[<\[](?={_BLANKS}\|)",  # <|im_start|>, [|user|], and the full-width bars of DeepSeek
            rf"<(?=!--|{_BLANKS}/|\[)",
            rf"\[(?={_BLANKS}/?{_BLANKS}(?i:{_BRACKETED}){_BLANKS}\]|/)",
            rf"<(?=<{_BLANKS}/?(?i:sys)>>)",
            rf"<(?={_BLANKS}(?i:{_NAMES})(?:[\s>=/|:]|$))",
            r"<(?=[^\W_]*_\w*(?:[\s>|=]|$))",  # <start_of_turn>, <tool_call>, <function_calls>, <extra_id_0>
            r"<(?=[A-Z][A-Z0-9]+>)",  # <PRE>, <EOT>, <BOS>
            r"<(?=\w+\|>)",  # <turn|>
            r"<(?=\w+:\w)",  # <seed:bos>, <xai:function_call>
            r">(?=>[A-Za-z_]+<<)",  # >>QUESTION<<
            r"(?i:\](?=~!?b\[|~b\])|\[(?=e~\[))",  # ]~b], [e~[
            rf"#(?=#[ \t]{{0,8}}#?[ \t]{{0,8}}(?i:{_ROLES})s?\b)",
            rf"\b(?:USER|ASSISTANT|SYSTEM|HUMAN|BOT|AI|GPT|INST|INSTRUCTION|RESPONSE)(?={_BLANKS}:)",
            rf"\bGPT4 Correct (?:User|Assistant)(?={_BLANKS}:)",
            rf"\n[ \t]*\n[ \t]*(?:Human|Assistant|User|System|Bot|AI|H|A|\u95ee|\u7b54)(?={_BLANKS}:)",
        )
    )
)
_SUSPECT: Final = re.compile(r"[<\[\]>#:]")


def inert(text: str) -> str:
    """Return a text without invisible characters and with a backslash in every control token; idempotent.

    Joiners stay where a script or an emoji needs them. Other line ends become line feeds.
    """
    shown = visible(LINE_END.sub("\n", text))
    folded = shown if shown.isascii() else shown.translate(_folding())
    if not _SUSPECT.search(folded):
        return shown
    parts: list[str] = []
    end = 0
    for found in _CONTROL.finditer(folded):
        parts += [shown[end : found.end()], "\\"]
        end = found.end()
    return "".join((*parts, shown[end:])) if parts else shown


def inert_line(text: str) -> str:
    """Return a text as `inert` does, on one line, with single blanks."""
    return " ".join(inert(" ".join(LINE_END.split(text))).split())


def visible(text: str) -> str:
    """Return a text without invisible characters. Line ends and tabs stay."""
    if text.isascii() and text.isprintable():
        return text
    return _HIDDEN.sub(lambda found: found.group(1) or "", text)


def revealed(text: str) -> str:
    """Return a text with the numbers of its invisible characters in their places, for people: "a\u27e8U+200B\u27e9b".

    Line ends become line feeds.
    """
    if text.isascii() and text.isprintable():
        return text
    text = LINE_END.sub("\n", text)
    return _HIDDEN.sub(lambda found: found.group(1) or f"\u27e8U+{ord(found.group()):04X}\u27e9", text)


def folded(text: str) -> str:
    """Return a text of the same length with ASCII characters for those that look like them."""
    return text if text.isascii() else text.translate(_folding())


@cache
def _folding() -> dict[int, str]:
    """Return the ASCII character for each lookalike: one for one, so that positions stay the same."""
    folding = {
        code: plain
        for first, end in _COMPATIBILITY
        for code in range(first, end)
        if len(plain := unicodedata.normalize("NFKC", chr(code))) == 1 and plain.isascii() and plain.isprintable()
    }
    for plain, alike in _LOOKALIKES.items():
        folding.update((ord(character), plain) for character in alike)
    return folding
