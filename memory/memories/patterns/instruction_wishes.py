"""Patterns for what a user wishes of an agent: how its answers should be, what it should not do."""

from __future__ import annotations

from typing import Final

from memory.memories.patterns import instruction_words as words
from memory.memories.patterns.bounds import REST, starting

_ADJECTIVE: Final = (
    r"(?:short|shorter|brief|concise|long|longer|detailed|direct|plain|simple|clear|thorough|formal|informal|casual"
    r"|honest|straight"
    r"|quick|crisp|terse|structured|practical|technical|friendly|in-depth|one-line|step-by-step|very|more|less|and"
    r"|my|your)"
)
WISHES: Final = (
    starting(r"(?P<rest>i(?:'d| would)? (?:\w{1,40} )?prefer (?:it )?(?:if|that|when|for) you\b.{0,400})"),
    starting(r"(?P<rest>i(?:'d| would) (?:rather|sooner) you\b.{0,400})"),
    starting(
        rf"(?P<rest>i(?:'d| would)? (?:always |really |much |strongly |generally ){{0,5}}(?:prefer "
        rf"(?:{_ADJECTIVE}(?:, |"
        rf" and | )){{0,5}}|(?:like|want|love)"
        rf" (?:{_ADJECTIVE}(?:, | and | )){{1,5}})(?:answers|replies|responses|explanations|summaries|code examples)\b"
        r"(?! (?:to|from|of|on|about)\b).{0,400})"
    ),
    starting(
        rf"(?P<rest>i (?:always |really )?(?:want|like|prefer|need|expect) (?:all )?(?:of )?(?:your|my) (?!code"
        rf"|feedback){words.OUTPUTS} (?:to be |in |short|brief|concise|long|detailed|formal|informal|simple|plain"
        rf"|with|without|as )\w{{0,40}}{REST})"
    ),
    starting(
        rf"(?P<rest>i (?:always |really ){{0,5}}(?:prefer|want|like|expect|need) {REST}\b(?:in"
        rf"|with|for|under) (?:all |each "
        rf"|every |any )?(?:of )?your (?:{words.OUTPUTS}|claims|answers?)\b{REST})"
    ),
    starting(
        rf"(?P<rest>i (?:don't|do not|never|no longer|really don't) (?:want|need|like|care for) {REST}\b(?:in|with"
        rf"|before|after|at the end of) "
        rf"(?:your|any of your|each of your) {words.OUTPUT}\b{REST})"
    ),
    starting(
        r"(?P<rest>i (?:don't|do not|really don't) (?:like|want|need) (?:such )?(?:long|lengthy|verbose|short|wordy"
        r"|vague) (?:answers|replies|responses|explanations)\b.{0,400})"
    ),
    starting(
        r"(?P<rest>i (?:don't like|do not like|hate|can't stand|dislike) it when you (?:start|begin|end|use|call"
        r"|apologi[sz]e|add|repeat|answer|reply|write|sugarcoat|say|give)\b.{0,400})"
    ),
    starting(
        r"(?P<rest>i (?:don't|do not) want you to (?:ever )?(?:call me|use|add|apologi[sz]e|suggest|recommend"
        r"|remind|send|delete|change|touch)\b.{0,400})"
    ),
    starting(
        r"(?P<rest>i(?:'d| would) (?:like|love) (?:for )?you to (?:address me|call me|speak|talk to me|treat me"
        r"|use|be more|be less)\b(?!.{0,400}\b(?:this|now)\b).{0,400})"
    ),
    starting(
        rf"(?P<rest>i (?:never|don't ever|do not ever) (?:want|need) (?:to see )?(?:the |an? |any |your )?"
        rf"(?:explanations?|{words.MANNER})\b{REST})"
    ),
    starting(r"(?P<rest>i prefer (?:code|examples|code examples) in \w.{0,400})"),
)
