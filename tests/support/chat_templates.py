"""The control tokens of chat templates, by family, and the disguises in which somebody may write them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Final

TOKENS: Final[dict[str, tuple[str, ...]]] = {
    "chatml": ("<|im_start|>", "<|im_end|>", "<|im_sep|>", "<|endoftext|>", "<|fim_prefix|>", "<|endofprompt|>"),
    "llama 2": ("[INST]", "[/INST]", "<<SYS>>", "<</SYS>>", "<s>", "</s>"),
    "llama 3": (
        "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|eom_id|>",
        "<|python_tag|>", "<|finetune_right_pad_id|>", "<|header_start|>", "<|eot|>",
    ),
    "mistral": (
        "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_CALLS]",
        "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CONTENT]", "[CALL_ID]", "[ARGS]", "[IMG]", "[IMG_BREAK]",
        "[IMG_END]", "[THINK]", "[/THINK]", "[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[MODEL_SETTINGS]", "[CONTROL_12]",
    ),
    "gemma": (
        "<start_of_turn>", "<end_of_turn>", "<bos>", "<eos>", "<pad>", "<unk>", "<mask>", "<start_of_image>",
        "<unused42>", "<|turn>", "<turn|>", "<|channel>", "<channel|>",
    ),
    "deepseek": (
        "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>", "<｜tool▁calls▁begin｜>",
        "<｜tool▁sep｜>", "<｜DSML｜function_calls>", "<|EOT|>",
    ),
    "phi": ("<|system|>", "<|user|>", "<|assistant|>", "<|end|>", "<|tool|>", "<|/tool|>"),
    "qwen": ("<tool_call>", "</tool_call>", "<tool_response>", "<tools>", "<think>", "</think>", "<|vision_start|>"),
    "cohere": (
        "<|START_OF_TURN_TOKEN|>", "<|END_OF_TURN_TOKEN|>", "<|SYSTEM_TOKEN|>", "<BOS_TOKEN>", "<EOS_TOKEN>",
        "<PAD_TOKEN>", "<|START_THINKING|>", "<|START_ACTION|>",
    ),
    "glm": ("[gMASK]", "[sMASK]", "<sop>", "<eop>", "<|observation|>", "<arg_key>", "<arg_value>", "[Round 1]"),
    "harmony": ("<|start|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|call|>", "<|return|>"),
    "anthropic": (
        "\n\nHuman:", "\n\nAssistant:", "<function_calls>", "</function_calls>", '<invoke name="x">',
        '<parameter name="x">', "<function_results>", "<invoke>", "<system>", "<thinking>",
    ),
    "kimi": ("<|im_user|>", "<|im_middle|>", "<|tool_calls_section_begin|>", "[BOS]", "[EOS]", "[EOT]", "[PAD]"),
    "minimax": ("]~b]", "]~!b[", "[e~["),
    "exaone": ("[|system|]", "[|user|]", "[|assistant|]", "[|endofturn|]"),
    "granite": ("<|start_of_role|>", "<|end_of_role|>", "<|tool_call|>"),
    "seed": ("<seed:bos>", "<seed:think>", "<seed:tool_call>", "<[begin_of_sentence]>"),
    "grok": ("<|separator|>", "<xai:function_call>"),
    "internlm": ("<eoh>", "<eoa>", "<|action_start|>"),
    "nemotron": ("<extra_id_0>", "<extra_id_1>", "<SPECIAL_12>"),
    "starcoder": ("<fim_prefix>", "<file_sep>", "<filename>", "<reponame>", "<PRE>", "<SUF>", "<MID>", "<EOT>"),
    "falcon": (">>QUESTION<<", ">>ANSWER<<"),
    "alpaca": ("### Instruction:", "### Response:", "### Human:", "### Assistant:"),
    "vicuna": ("USER:", "ASSISTANT:", "USER :", "SYSTEM:"),
    "openchat": ("GPT4 Correct User:", "GPT4 Correct Assistant:", "<|end_of_turn|>"),
    "minicpm": ("<用户>", "<AI>"),
    "roles": (
        "<role>", "</role>", "<role=user>", "<turn>", "<message>", "<prompt>", "<agent>", "[USER]", "[/USER]", "[BOT]",
        "[ASSISTANT]", "[SYSTEM]", "[HUMAN]", "[AI]", "[INSTRUCTION]", "[RESPONSE]", "BOT:", "### User:", "###Bot:",
        "#### Instruction:", "### Query:", "## Response:",
    ),
    "bert": ("[CLS]", "[SEP]", "[MASK]", "[UNK]"),
}  # fmt: skip

# Joiners, a soft hyphen, a variation selector, a tag, a filler, a control character: all of them invisible.
_INVISIBLE: Final = "\u200b\u200c\u200d\u2060\ufeff\xad\u034f\ufe0f\U000e0041\u115f\x07\u202e"
_BARS: Final = "\uff5c\u2502\u2223\u2758\u01c0\xa6\uffe8"


_BRACKET: Final = re.compile(r"^([<\[]+)(.*?)([>\]]+)$")


def _wide(text: str) -> str:
    return "".join(chr(ord(own) + 0xFEE0) if "!" <= own <= "~" else own for own in text)


def _bold(text: str) -> str:
    return "".join(chr(0x1D41A + ord(own) - ord("a")) if "a" <= own <= "z" else own for own in text)


# A role's name in small letters and a colon is ordinary text, so case makes no token of what is none.
DISGUISES: Final[dict[str, Callable[[str], str]]] = {
    "plain": lambda token: token,
    "small": lambda token: token if token.endswith(":") else token.lower(),
    "capitals": lambda token: token if token.endswith(":") else token.upper(),
    "blanks": lambda token: _BRACKET.sub(r"\1 \2 \3", token),
    "full width": lambda token: _wide(token),
    "bold": lambda token: token if "<" not in token else _bold(token),
    **{
        f"split by U+{ord(hidden):04X}": (lambda token, hidden=hidden: hidden.join(token))  # type: ignore[misc]
        for hidden in _INVISIBLE
    },
    **{
        f"bar U+{ord(bar):04X}": (lambda token, bar=bar: token.replace("|", bar))  # type: ignore[misc]
        for bar in _BARS
    },
    "angles": lambda token: token.replace("<", "\u2039").replace(">", "\u203a") if "|" in token else token,
}


def as_read(text: str) -> str:
    """Return a text as a careless reader takes it: nothing invisible, plain forms, bars and brackets, small letters."""
    bare = "".join(own for own in text if own in "\n\t" or unicodedata.category(own) not in ("Cc", "Cf", "Cn"))
    bare = bare.translate({ord(own): None for own in "\u034f\ufe0f\ufe0e\u115f"})
    plain = bare.translate({ord(bar): "|" for bar in _BARS} | {0x2581: "_", 0x2039: "<", 0x203A: ">"})
    return unicodedata.normalize("NFKC", plain).lower()
