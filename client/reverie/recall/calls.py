"""The calls for recall, context, session search and recall events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, Literal, Self

from msgspec import Meta

from reverie.calls import InSession, OfOneOrAll, OfUser, Paged, Queried
from reverie.errors import Rejected
from reverie.fields import (
    MAX_COUNT,
    AsOf,
    ChannelId,
    Count,
    Limit,
    Offset,
    Query,
    SessionId,
    Share,
    Tags,
    UserId,
    label,
)
from reverie.recall import types

MAX_RESULTS: Final = 100
MAX_QUERY_CHARACTERS: Final = 100_000
# The smallest context: title and note, one heading, and some words of the newest turn.
MIN_CONTEXT_TOKENS: Final = 64
_ROUNDING: Final = 1e-6

Mode = Literal["keyword", "vector", "hybrid"]
Fusion = Literal["contextual", "weighted", "rrf"]
ContextRanking = Literal["recall", "decay"]
Scope = Literal["conversation", "channel", "workspace", "account"]
Kind = Literal["message", "file", "memory"]

Results = Annotated[int, Meta(ge=1, le=MAX_RESULTS, description="The maximum number of results.")]
SearchMode = Annotated[Mode, Meta(description="Search by words, by meaning, or by both.")]
MinScore = Annotated[
    Share, Meta(description="Leave out results with a relevance below this; by default nothing is left out.")
]
TokenBudget = Annotated[Count, Meta(description="The maximum number of tokens; by default the server's setting.")]


class Recall(Queried[types.RecallResponse], kw_only=True, frozen=True):
    """Return the messages, files and memories of this agent that match the query, best first.

    `session` or `channel` limits the recall to one of them, `tags` to items with all of these tags, `kinds` to some of
    "message", "file" and "memory". `scope` widens a recall from a session: "channel" to the session's channel,
    "workspace" to the whole workspace, "account" to memories of the account tier as well, which is the default without
    a session. `fusion` "contextual" also scores the messages around a message; "weighted" and "rrf" fuse plain BM25 and
    cosine similarity. The two weights sum to 1; give one of them. Scores are returned only with `explain`. With
    `min_score`, results whose relevance is below it are left out: nothing is returned if nothing fits. With `as_of`,
    it finds only what had been said by then, and the memories that held then, even if they have been replaced since.
    If the server has a reranker, it orders the best results, except with `rerank=False` or another `mode` or `fusion`.

    Raises `Rejected`, `NotFound` for an unknown session or channel, and `Unavailable`.
    """

    route: ClassVar = "POST /v1/recall"
    required_scope: ClassVar = "read"
    session: Annotated[SessionId | None, Meta(description="Only this session, unless `scope` widens it.")] = None
    channel: Annotated[ChannelId | None, Meta(description="Only this channel.")] = None
    scope: Annotated[Scope | None, Meta(description="How far beyond the session to search.")] = None
    tags: Tags = ()
    kinds: Annotated[Sequence[Kind], Meta(description="Only these kinds of result.")] = ()
    mode: SearchMode = "hybrid"
    limit: Results = 5
    query_embedding: Annotated[
        Sequence[float] | None, Meta(description="The vector of the query; by default the server embeds the query.")
    ] = None
    fusion: Annotated[Fusion, Meta(description="How keyword and vector scores are fused.")] = "contextual"
    vector_weight: Annotated[
        Share | None, Meta(description="The weight of vector search, from 0 to 1; keyword search has the rest.")
    ] = None
    fts_weight: Annotated[
        Share | None, Meta(description="The weight of keyword search, from 0 to 1; vector search has the rest.")
    ] = None
    min_score: MinScore | None = None
    as_of: AsOf | None = None
    neighbours: Annotated[
        int, Meta(ge=0, le=10, description="The number of messages to return before and after each result.")
    ] = 0
    explain: Annotated[bool, Meta(description="Return ranks and scores.")] = False
    rerank: Annotated[bool, Meta(description="Let the server's reranker order the results, if it has one.")] = True

    def checked(self) -> Self:
        """Raise `Rejected` for arguments that do not go together, and a query too long."""
        if len(self.query) > MAX_QUERY_CHARACTERS:
            raise Rejected(
                f"query has {len(self.query):,} characters; the limit is {MAX_QUERY_CHARACTERS:,}", field="query"
            )
        if self.scope == "conversation" and self.session is None:
            raise Rejected("scope conversation needs a session", field="scope")
        if self.scope == "channel" and self.session is None and self.channel is None:
            raise Rejected("scope channel needs a channel, or a session in one", field="scope")
        if self.vector_weight is not None and self.fts_weight is not None:
            total = self.vector_weight + self.fts_weight
            if abs(total - 1.0) > _ROUNDING:
                raise Rejected(
                    f"vector_weight and fts_weight sum to {total:g}; they must sum to 1, or give one of them alone",
                    field="vector_weight",
                )
        return self


class SearchSessions(Queried[types.FoundSessions], kw_only=True, frozen=True):
    """Return the sessions that match the query, best first.

    With `min_score`, sessions whose best match has a relevance below it are left out: nothing is returned if nothing
    fits. Raises `Rejected` and `Unavailable`.
    """

    route: ClassVar = "POST /v1/sessions/search"
    required_scope: ClassVar = "read"
    tags: Tags = ()
    mode: SearchMode = "hybrid"
    limit: Results = 5
    min_score: MinScore | None = None


class ListRecallEvents(Paged[types.RecallEventList], kw_only=True, frozen=True):
    """List the results of this agent's recalls, newest first: one event per result, recorded soon after the recall.

    Events of memories in the account tier come from recalls in any workspace and are marked `account`. Scores are
    returned only with `explain`.
    """

    route: ClassVar = "GET /v1/recall-events"
    user: UserId | None = None
    memory: Annotated[str | None, Meta(description="Only results that are this memory.")] = None
    explain: Annotated[bool, Meta(description="Return scores.")] = False


class ListContexts(OfOneOrAll[types.ServedContextList], kw_only=True, frozen=True):
    """List the contexts that were served in the last days, newest first, without their items."""

    route: ClassVar = "GET /v1/contexts"
    session: Annotated[str | None, Meta(description="Only contexts of this session.")] = None
    limit: Limit = 50
    offset: Offset = 0


class ShowContext(OfOneOrAll[types.ServedContext], frozen=True):
    """Return the items of a context in order, with relevances; also those left out, and why. Raises `NotFound`."""

    route: ClassVar = "GET /v1/contexts/{id}"
    id: Annotated[str, label("The id of a context that was served.")]


class _SessionQuery(OfUser[types.Context], frozen=True):
    session: Annotated[
        SessionId | None, Meta(description="The conversation that goes on; by default none, for a new one.")
    ] = None
    query: Annotated[
        Query | None, Meta(description="What the agent is about to answer; by default the newest user turn.")
    ] = None


class GetContext(_SessionQuery, kw_only=True, frozen=True):
    """Return what an agent should know before it answers, as Markdown for its system prompt.

    It has the newest messages of a `session`, its summary, and what was said and remembered elsewhere that fits the
    `query`. Without a session it has what `user` may see.

    `str()` of the result is the Markdown. It has at most `token_budget` tokens, less `reserved_tokens` if the budget is
    to cover more of the prompt; without a budget, the setting `context_token_budget` less `system_prompt_buffer`. Of
    these, `memory_tokens` are for results from elsewhere: by default all that are left if `token_budget` is given,
    else the server's setting. The user's standing instructions come first: the newest that fit into
    `instruction_tokens`; 0 leaves them out. `channel` searches another channel than the session's own. If no result
    reaches the relevance of the server's setting, no results are added, and the Markdown says so; with `min_score`,
    each result below it is left out instead. With `as_of`, it is the context of that time: without what was said
    later, and with the memories that held then. With `refine`, the server's language model drops irrelevant items.
    Raises `Rejected`, `NotFound` for an unknown session or channel, and `Unavailable`.
    """

    route: ClassVar = "POST /v1/context"
    required_scope: ClassVar = "read"
    channel: Annotated[ChannelId | None, Meta(description="The channel to search; by default the session's own.")] = (
        None
    )
    token_budget: TokenBudget | None = None
    reserved_tokens: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_COUNT)] | None,
        Meta(description="Tokens of the budget that the rest of the prompt needs; by default none of a given budget."),
    ] = None
    memory_tokens: Annotated[
        Count | None, Meta(description="The maximum number of tokens of results from elsewhere.")
    ] = None
    instruction_tokens: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_COUNT)] | None,
        Meta(description="The maximum number of tokens of standing instructions; by default the server's setting."),
    ] = None
    ranking: Annotated[
        ContextRanking,
        Meta(
            description="The order of results. `recall`: how well they fit the query; `decay`: that, multiplied by"
            " importance, decay with time and the number of recalls."
        ),
    ] = "recall"
    max_messages: Annotated[
        Count | None,
        Meta(description="The maximum number of the session's messages; by default the server's setting."),
    ] = None
    min_score: Annotated[
        Share | None,
        Meta(
            description="Leave out results less relevant than this; by default all are left out if none fits the query."
        ),
    ] = None
    as_of: AsOf | None = None
    refine: Annotated[bool, Meta(description="Let the language model drop irrelevant items.")] = False


class RestoreSession(InSession[types.Restored], frozen=True):
    """Return the newest messages of a session that fit into a token budget, oldest first, and its rolling summary.

    The default budget is the server's setting minus its `system_prompt_buffer`. Raises `Rejected`, `NotFound` and
    `Unavailable`.
    """

    route: ClassVar = "POST /v1/sessions/{session}/restore"
    required_scope: ClassVar = "read"
    token_budget: TokenBudget | None = None
