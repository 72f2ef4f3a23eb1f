"""The two clients, `Reverie` and `AsyncReverie`, and how their methods follow from declared calls.

    class Facts(Subject[_C]):
        set = method(SetFact)
        list = method(ListFacts, lambda answer: answer.facts)

Methods of `Reverie` block, those of `AsyncReverie` are awaited. Type checkers see the arguments of the struct and the
type of its response; at run time a method becomes a function when it is first used, so `help` and `inspect` work. Each
call is declared in the `calls` module of its subject. Celery, redis, httpx2, asyncio, inspect and threads are imported
when they are first needed.
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Final,
    Generic,
    NoReturn,
    ParamSpec,
    Self,
    TypeVar,
    get_type_hints,
    overload,
)

from reverie import items as item_calls
from reverie import upkeep as upkeep_calls
from reverie.calls import Call, refused, validated
from reverie.clock import in_seconds
from reverie.config import resolve_config
from reverie.connection import Connection, ingest, ingest_file
from reverie.decoding import near_names
from reverie.errors import Rejected
from reverie.memories import calls as memory_calls
from reverie.memories.transfer import import_memories
from reverie.pipeline import calls as pipeline_calls
from reverie.recall import calls as recall_calls
from reverie.scheduling import calls as scheduling_calls
from reverie.scheduling.calls import confirm_delivery
from reverie.sessions import calls as session_calls
from reverie.sessions.working import read_working_memory
from reverie.trust import calls as trust_calls
from reverie.trust import exports
from reverie.trust.export_files import export_file, import_file
from reverie.types import Deleted

# Maximum concurrent calls of one asyncio client: each takes a thread until its response has arrived.
_THREADS: Final = 8

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_A = TypeVar("_A")
_C = TypeVar("_C", bound="_Client[Any]")
_T = TypeVar("_T")
_P = ParamSpec("_P")


class Method(Generic[_P, _T]):
    """A descriptor that turns a function of a connection into a method of both clients; see also `method`.

    `sends` is the declared call that the method sends; with `described_by_call` it has the arguments of that call, else
    those of the function.
    """

    def __init__(
        self,
        run: Callable[Concatenate[Connection, _P], _T],
        sends: Callable[..., Any],
        *,
        described_by_call: bool = False,
    ) -> None:
        self.sends = sends
        self._run = run
        self._described_by = sends if described_by_call else run
        self._name = ""

    def __set_name__(self, _: type, name: str) -> None:
        """Store the name of the method."""
        self._name = name

    @overload
    def __get__(self, holder: Methods[SyncClient], owner: type) -> Callable[_P, _T]: ...
    @overload
    def __get__(self, holder: Methods[AsyncClient], owner: type) -> Callable[_P, Coroutine[Any, Any, _T]]: ...
    @overload
    def __get__(self, holder: None, owner: type) -> Any: ...
    def __get__(self, holder: Any, owner: Any) -> Any:
        """Replace this descriptor by a function in the holder's class on first use, and return the bound method."""
        if self._name in vars(owner):  # `help` asks the class of the declaration, too, which both clients share
            return self
        function = (_async_function if owner.is_async else _sync_function)(self._run)
        function.__name__, function.__qualname__ = self._name, f"{owner.__qualname__}.{self._name}"
        function.__doc__, function.__module__ = self._described_by.__doc__, owner.__module__
        function.__signature__ = _signature_of(self._described_by)  # type: ignore[attr-defined]  # read by `inspect`
        setattr(owner, self._name, function)
        return getattr(owner if holder is None else holder, self._name)


@overload
def method(call: Callable[_P, Call[_A]]) -> Method[_P, _A]: ...
@overload
def method(call: Callable[_P, Call[_A]], result: Callable[[_A], _T]) -> Method[_P, _T]: ...
def method(call: Any, result: Callable[[Any], Any] | None = None) -> Any:
    """Return a method that sends a call and takes the arguments of its struct.

    `result` converts the response to what the method returns. The method raises `Rejected` for invalid arguments, and
    whatever the server raised.
    """

    def run(connection: Connection, *args: Any, **kwargs: Any) -> Any:
        checked = validated(call(*args, **kwargs))
        try:
            response = connection.send(checked)
        except Rejected as error:
            raise refused(error, type(checked)) from None
        return response if result is None else result(response)

    return Method(run, call, described_by_call=True)


class Methods(Generic[_C]):
    """A class whose methods send calls: a client, or one of its subjects."""

    is_async: ClassVar = False

    def _call(self, run: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function with the connection of the client."""
        raise NotImplementedError


class Subject(Methods[_C]):
    """The methods of a client for one subject, such as `memory.facts`."""

    def __init__(self, holder: Methods[_C]) -> None:
        self._call = holder._call  # type: ignore[method-assign]

    if not TYPE_CHECKING:

        def __call__(self, *_: Any, **__: Any) -> NoReturn:
            """Raise `TypeError` with the names of the methods: `memory.sessions()` is now `memory.sessions.list()`."""
            raise TypeError(f"{type(self).__name__!r} is not callable; its methods are {self._names()}")

        def _names(self) -> str:
            return ", ".join(name for name in dir(type(self)) if name[0] != "_" and name != "is_async")

        def __getattr__(self, name: str) -> NoReturn:
            """Raise `AttributeError` with the names of the methods, and the docstring, which names some elsewhere."""
            text = f"{type(self).__name__!r} has no attribute {name!r}; its methods are {self._names()}"
            raise AttributeError(f"{text}. {type(self).__doc__}")


def subject(kind: Callable[..., Any]) -> Any:
    """Return an attribute that holds a subject of the client that it is read from."""
    return SubjectAttribute(kind)


class SubjectAttribute:
    """A descriptor that returns a subject of a client; for `AsyncReverie`, one whose methods must be awaited."""

    def __init__(self, kind: Any) -> None:
        self.kind = kind

    def __get__(self, holder: Any, owner: Any) -> Any:
        """Return the subject of a client; read from the client's class, return the class of the subject."""
        kind = _class_of(self.kind, owner.is_async)
        return kind if holder is None else kind(holder)


@functools.cache
def _class_of(kind: type, is_async: bool) -> type:
    name = f"Async{kind.__name__}" if is_async else kind.__name__
    return type(name, (kind,), {"__doc__": kind.__doc__, "__module__": kind.__module__, "is_async": is_async})


def _sync_function(run: Callable[..., Any]) -> Callable[..., Any]:
    def function(self: Methods[SyncClient], /, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._call(run, *args, **kwargs)
        except TypeError:
            _check_arguments(function, args, kwargs)
            raise

    return function


def _async_function(run: Callable[..., Any]) -> Callable[..., Any]:
    async def function(self: Methods[AsyncClient], /, *args: Any, **kwargs: Any) -> Any:
        try:
            return await self._call(run, *args, **kwargs)
        except TypeError:
            _check_arguments(function, args, kwargs)
            raise

    return function


def _check_arguments(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise `TypeError`, which names the method, for arguments that it does not take."""
    import inspect

    signature = inspect.signature(function)
    method, known = f"{function.__qualname__}()", list(signature.parameters)[1:]
    for name in kwargs:
        if name not in known:
            raise TypeError(f"{method} has no argument {name!r}; {near_names(name, known)}") from None
    try:
        signature.bind(None, *args, **kwargs)
    except TypeError as error:
        named_only = [name for name in known if signature.parameters[name].kind is inspect.Parameter.KEYWORD_ONLY]
        hint = f"; give by name {', '.join(named_only)}" if len(args) > len(known) - len(named_only) else ""
        raise TypeError(f"{method}: {error}{hint}") from None


def _signature_of(described_by: Callable[..., Any]) -> Any:
    """Return the signature of a call's struct, or of a function whose first argument is the connection."""
    import inspect

    parameters = list(inspect.signature(described_by).parameters.values())
    if isinstance(described_by, type):
        hints = get_type_hints(described_by)  # without the metadata of Annotated
        parameters = [parameter.replace(annotation=hints[parameter.name]) for parameter in parameters]
    else:
        parameters = parameters[1:]
    return inspect.Signature([inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY), *parameters])


class _SignatureOfInit:
    """What `help` shows as the arguments of a client, in place of those of `__new__`."""

    def __get__(self, _: object, owner: Any) -> Any:
        import inspect

        return inspect.Signature(list(inspect.signature(owner.__init__).parameters.values())[1:])


class _Client(Methods[_C]):
    """The base of both clients: one connection, configured by arguments or the environment."""

    if not TYPE_CHECKING:
        __signature__ = _SignatureOfInit()

        def __new__(cls, *_: Any, **arguments: Any) -> Self:
            """Raise `TypeError`, which names the client's own class, for an argument that it does not take."""
            known = ["agent", *_Client.__init__.__kwdefaults__]
            for name in arguments:
                if name not in known and cls.__init__ is _Client.__init__:
                    raise TypeError(f"{cls.__name__}() has no argument {name!r}; {near_names(name, known)}")
            return super().__new__(cls)

    def __init__(
        self,
        agent: str | None = None,
        *,
        url: str | None = None,
        broker: str | None = None,
        token: str | None = None,
        workspace: str | None = None,
        prefix: str | None = None,
        timeout_seconds: float | timedelta = 30.0,
    ) -> None:
        config = resolve_config(
            agent=agent,
            url=url,
            broker=broker,
            token=token,
            workspace=workspace,
            prefix=prefix,
            timeout_seconds=in_seconds(timeout_seconds),
        )
        self.agent = config.agent
        self.workspace = config.workspace
        self.connection = Connection(config)


class SyncClient(_Client["SyncClient"]):
    """A client with blocking methods. Safe to share between threads and to use after a fork."""

    def _call(self, run: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        return run(self.connection, *args, **kwargs)

    def __enter__(self) -> Self:
        """Use the client as a context manager; it is closed at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the client."""
        self.close()

    def close(self) -> None:
        """Close all connections. The next call opens them again."""
        self.connection.close()


class AsyncClient(_Client["AsyncClient"]):
    """A client for asyncio: its calls run in its own small thread pool.

    Cancelling a call stops waiting for it; the request may still reach the server.
    """

    is_async = True

    async def _call(self, run: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        import asyncio

        context = contextvars.copy_context()
        bound = functools.partial(context.run, functools.partial(run, self.connection, *args, **kwargs))
        return await asyncio.get_running_loop().run_in_executor(self._threads, bound)

    @functools.cached_property
    def _threads(self) -> ThreadPoolExecutor:
        from concurrent.futures import ThreadPoolExecutor

        return ThreadPoolExecutor(_THREADS, thread_name_prefix="reverie")

    async def __aenter__(self) -> Self:
        """Use the client as a context manager; it is closed at the end."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the client."""
        await self.close()

    async def close(self) -> None:
        """Wait for the calls in progress, then close all connections. The client cannot be used afterwards."""
        import asyncio

        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)
        self.connection.close()


def _deleted(answer: Deleted) -> bool:
    return answer.deleted


# For this version only: the methods that the client had before, each with the one that has replaced it.
_RENAMED: Final = """
    memory=memories.get search_memories=memories.search update_memory=memories.update
    pending_memories=memories.pending approve_memory=memories.approve memory_stats=memories.stats
    recall_events=memories.recall_events export_memories=memories.export import_memories=memories.import_
    set_fact=facts.set fact=facts.get fact_history=facts.history forget_fact=facts.forget
    add_note=notes.add note=notes.get update_note=notes.update delete_note=notes.delete
    ingest_file=files.add delete_file=files.delete
    put_item=items.put item=items.get search_items=items.search item_namespaces=items.namespaces
    delete_item=items.delete batch_items=items.batch sweep_items=items.sweep
    start_session=sessions.start session=sessions.get session_by_ref=sessions.get_by_ref
    search_sessions=sessions.search messages=sessions.messages newest_messages=sessions.newest_messages
    pop_message=sessions.pop_message summary=sessions.summary compact=sessions.compact move_session=sessions.move
    close_session=sessions.close archive_session=sessions.archive export_session=sessions.export
    forget_session=sessions.forget record_event=sessions.record_event
    create_channel=channels.create channel=channels.get describe_channel=channels.describe
    delete_channel=channels.delete
    scratchpad=scratchpads.get write_scratchpad=scratchpads.write clear_scratchpad=scratchpads.clear
    scratchpad_keys=scratchpads.keys scratchpad_key=scratchpads.get_key write_scratchpad_key=scratchpads.write_key
    delete_scratchpad_key=scratchpads.delete_key clear_scratchpad_keys=scratchpads.clear_keys
    add_schedule=schedules.add schedule=schedules.get count_schedules=schedules.count
    update_schedule=schedules.update pause_schedule=schedules.pause resume_schedule=schedules.resume
    delete_schedule=schedules.delete next_runs=schedules.next_runs preview_runs=schedules.preview_runs
    run_schedule_now=schedules.run_now schedule_runs=runs.list schedule_run=runs.get complete_run=runs.complete
    cancel_run=runs.cancel worker_key=runs.worker_key
    remind=reminders.add reminder=reminders.get claim_reminders=reminders.claim
    reminder_delivered=reminders.confirm cancel_reminder=reminders.cancel
    acknowledge_notifications=notifications.acknowledge
    curation_entry=curation.get undo=curation.undo undo_all=curation.undo_all promotions=curation.promotions
    checkpoint=memory_files.checkpoint history=memory_files.history diff=memory_files.diff
    create_token=admin.tokens.create tokens=admin.tokens.list rotate_token=admin.tokens.rotate
    revoke_token=admin.tokens.revoke audit=admin.audit quotas=admin.quotas.list set_quotas=admin.quotas.set
    workspaces=admin.workspaces.list agents=admin.workspaces.agents delete_workspace=admin.workspaces.delete
    jobs=admin.jobs.list run_job=admin.jobs.run
    dead_letters=admin.dead_letters.list dead_letter=admin.dead_letters.get replay=admin.dead_letters.replay
    drop=admin.dead_letters.drop erase=admin.erasures.create erasure=admin.erasures.get
    erasures=admin.erasures.list export_file=admin.export_file import_file=admin.import_file
"""
OLD_NAMES: Final = dict(pair.split("=") for pair in _RENAMED.split())


class Memories(Subject[_C]):
    """What an agent knows; `remember` and `forget` of the client add and delete."""

    list = method(memory_calls.ListMemories, lambda answer: answer.memories)
    get = method(memory_calls.GetMemory)
    search = method(memory_calls.SearchMemories)
    update = method(memory_calls.UpdateMemory)
    pending = method(memory_calls.ListPendingMemories, lambda answer: answer.memories)
    approve = method(memory_calls.ApproveMemory)
    confirm = method(memory_calls.ConfirmMemory)
    review = method(upkeep_calls.GetReview)
    stats = method(memory_calls.GetMemoryStats)
    recall_events = method(recall_calls.ListRecallEvents, lambda answer: answer.recall_events)
    export = method(memory_calls.ExportMemories)
    import_ = Method(import_memories, memory_calls.ImportMemories)


class Contexts(Subject[_C]):
    """What was told to the agent in the last days, and why."""

    list = method(recall_calls.ListContexts, lambda answer: answer.contexts)
    show = method(recall_calls.ShowContext)


class Facts(Subject[_C]):
    """One current value for each category and key, with the earlier ones."""

    set = method(memory_calls.SetFact)
    get = method(memory_calls.GetFact)
    list = method(memory_calls.ListFacts, lambda answer: answer.facts)
    history = method(memory_calls.GetFactHistory, lambda answer: answer.facts)
    forget = method(memory_calls.ForgetFact, _deleted)


class Notes(Subject[_C]):
    """Notes, each under its own id."""

    add = method(memory_calls.AddNote)
    get = method(memory_calls.GetNote)
    list = method(memory_calls.ListNotes, lambda answer: answer.notes)
    update = method(memory_calls.UpdateNote)
    delete = method(memory_calls.DeleteNote, _deleted)


class Files(Subject[_C]):
    """Text files that recall finds passages of."""

    add = Method(ingest_file, pipeline_calls.IngestFile)
    list = method(pipeline_calls.ListFiles, lambda answer: answer.files)
    delete = method(pipeline_calls.DeleteFile, _deleted)


class Items(Subject[_C]):
    """JSON values under a namespace and a key."""

    put = method(item_calls.PutItem)
    get = method(item_calls.GetItem)
    search = method(item_calls.SearchItems)
    namespaces = method(item_calls.ListItemNamespaces, lambda answer: answer.namespaces)
    delete = method(item_calls.DeleteItem, _deleted)
    batch = method(item_calls.BatchItems, lambda answer: answer.outcomes)
    sweep = method(item_calls.SweepItems, lambda answer: answer.removed)


class Sessions(Subject[_C]):
    """Conversations: their messages, summaries and states."""

    start = method(session_calls.StartSession)
    list = method(session_calls.ListSessions, lambda answer: answer.sessions)
    get = method(session_calls.GetSession)
    get_by_ref = method(session_calls.GetSessionByRef)
    search = method(recall_calls.SearchSessions)
    messages = method(session_calls.ListMessages, lambda answer: answer.messages)
    newest_messages = method(session_calls.ListNewestMessages, lambda answer: answer.messages)
    pop_message = method(session_calls.ForgetNewestMessage, lambda answer: answer.message)
    summary = method(session_calls.GetSummary)
    compact = method(session_calls.CompactSession)
    move = method(session_calls.MoveSession)
    close = method(session_calls.CloseSession)
    archive = method(session_calls.ArchiveSession)
    export = method(session_calls.ExportSession)
    forget = method(session_calls.ForgetSession, _deleted)
    record_event = method(session_calls.RecordEvent)


class Channels(Subject[_C]):
    """Groups of sessions and memories."""

    create = method(session_calls.CreateChannel)
    get = method(session_calls.GetChannel)
    list = method(session_calls.ListChannels, lambda answer: answer.channels)
    describe = method(session_calls.DescribeChannel)
    delete = method(session_calls.DeleteChannel, _deleted)


class Scratchpads(Subject[_C]):
    """Working notes of a session: a list of short texts, and values under keys."""

    get = method(session_calls.GetScratchpad, lambda answer: answer.items)
    write = method(session_calls.WriteScratchpad, lambda answer: answer.items)
    clear = method(session_calls.ClearScratchpad, lambda answer: answer.cleared)
    keys = method(session_calls.ListScratchpadKeys, lambda answer: answer.entries)
    get_key = method(session_calls.GetScratchpadKey)
    write_key = method(session_calls.WriteScratchpadKey)
    delete_key = method(session_calls.DeleteScratchpadKey, _deleted)
    clear_keys = method(session_calls.ClearScratchpadKeys, lambda answer: answer.cleared)


class Schedules(Subject[_C]):
    """Goals that run once at a time, or repeatedly."""

    add = method(scheduling_calls.AddSchedule)
    get = method(scheduling_calls.GetSchedule)
    list = method(scheduling_calls.ListSchedules)
    count = method(scheduling_calls.CountSchedules, lambda answer: answer.count)
    update = method(scheduling_calls.UpdateSchedule)
    pause = method(scheduling_calls.PauseSchedule)
    resume = method(scheduling_calls.ResumeSchedule)
    delete = method(scheduling_calls.DeleteSchedule, _deleted)
    next_runs = method(scheduling_calls.GetNextRuns)
    preview_runs = method(scheduling_calls.PreviewRuns)
    run_now = method(scheduling_calls.RunScheduleNow)


class Runs(Subject[_C]):
    """The runs of schedules, and what workers of your own need to execute them."""

    list = method(scheduling_calls.ListScheduleRuns, lambda answer: answer.runs)
    get = method(scheduling_calls.GetRun)
    complete = method(scheduling_calls.CompleteRun)
    cancel = method(scheduling_calls.CancelRun)
    worker_key = method(scheduling_calls.GetWorkerKey)


class Reminders(Subject[_C]):
    """Messages that are delivered once, at a time."""

    add = method(scheduling_calls.Remind)
    get = method(scheduling_calls.GetReminder)
    list = method(scheduling_calls.ListReminders)
    claim = method(scheduling_calls.ClaimReminders, lambda answer: answer.claimed)
    confirm = Method(confirm_delivery, scheduling_calls.ConfirmReminder)
    cancel = method(scheduling_calls.CancelReminder, _deleted)


class Notifications(Subject[_C]):
    """The notifications of schedules and reminders."""

    list = method(scheduling_calls.ListNotifications)
    acknowledge = method(scheduling_calls.AcknowledgeNotifications, lambda answer: answer.acknowledged)


class Curation(Subject[_C]):
    """The changes that jobs made to memories."""

    list = method(upkeep_calls.ListCuration, lambda answer: answer.entries)
    get = method(upkeep_calls.GetCurationEntry)
    runs = method(upkeep_calls.ListCurationRuns, lambda answer: answer.runs)
    run = method(upkeep_calls.GetCurationRun)
    accept = method(upkeep_calls.AcceptChanges, lambda answer: answer.accepted)
    undo = method(upkeep_calls.Undo)
    undo_all = method(upkeep_calls.UndoAll)
    promotions = method(upkeep_calls.ListPromotions, lambda answer: answer.promotions)


class MemoryFiles(Subject[_C]):
    """The commits of the agent's memory files."""

    checkpoint = method(upkeep_calls.MakeCheckpoint)
    history = method(upkeep_calls.ListHistory, lambda answer: answer.commits)
    diff = method(upkeep_calls.GetDiff, lambda answer: answer.text)


class Workspaces(Subject[_C]):
    """All workspaces, and the agents of the client's own."""

    list = method(session_calls.ListWorkspaces, lambda answer: answer.workspaces)
    agents = method(session_calls.ListAgents, lambda answer: answer.agents)
    delete = method(session_calls.DeleteWorkspace, _deleted)


class Jobs(Subject[_C]):
    """The periodic jobs."""

    list = method(upkeep_calls.ListJobs, lambda answer: answer.jobs)
    run = method(upkeep_calls.RunJob)


class DeadLetters(Subject[_C]):
    """Messages and files that could not be stored or embedded."""

    list = method(pipeline_calls.ListDeadLetters, lambda answer: answer.dead_letters)
    get = method(pipeline_calls.GetDeadLetter)
    replay = method(pipeline_calls.ReplayDeadLetter)
    drop = method(pipeline_calls.DropDeadLetter, _deleted)


class Erasures(Subject[_C]):
    """Erasures of a user, a session, a message, a memory, an agent or a workspace, with their receipts."""

    create = method(trust_calls.Erase)
    get = method(trust_calls.GetErasure)
    list = method(trust_calls.ListErasures, lambda answer: answer.erasures)


class Tokens(Subject[_C]):
    """The access tokens of the server."""

    create = method(trust_calls.CreateToken)
    list = method(trust_calls.ListTokens, lambda answer: answer.tokens)
    rotate = method(trust_calls.RotateToken)
    revoke = method(trust_calls.RevokeToken, lambda answer: answer.tokens)


class Quotas(Subject[_C]):
    """How much workspaces and agents may store."""

    list = method(trust_calls.ListQuotas, lambda answer: answer.quotas)
    set = method(trust_calls.SetQuotas, lambda answer: answer.quotas)


class Admin(Subject[_C]):
    """The work of a server's operator."""

    tokens: Tokens[_C] = subject(Tokens)
    quotas: Quotas[_C] = subject(Quotas)
    workspaces: Workspaces[_C] = subject(Workspaces)
    jobs: Jobs[_C] = subject(Jobs)
    dead_letters: DeadLetters[_C] = subject(DeadLetters)
    erasures: Erasures[_C] = subject(Erasures)
    audit = method(trust_calls.ListAudit, lambda answer: answer.entries)
    export_file = Method(export_file, exports.ReadExport)
    import_file = Method(import_file, exports.ImportRecords)


class _Calls(Methods[_C]):
    """The methods of both clients."""

    ingest = Method(ingest, pipeline_calls.IngestMessages)
    recall = method(recall_calls.Recall)
    context = method(recall_calls.GetContext)
    working = Method(read_working_memory, session_calls.GetWorkingMemory)
    restore = method(recall_calls.RestoreSession)
    remember = method(memory_calls.Remember)
    forget = method(memory_calls.Forget, _deleted)
    status = method(pipeline_calls.GetStatus)

    memories: Memories[_C] = subject(Memories)
    contexts: Contexts[_C] = subject(Contexts)
    facts: Facts[_C] = subject(Facts)
    notes: Notes[_C] = subject(Notes)
    files: Files[_C] = subject(Files)
    items: Items[_C] = subject(Items)
    sessions: Sessions[_C] = subject(Sessions)
    channels: Channels[_C] = subject(Channels)
    scratchpads: Scratchpads[_C] = subject(Scratchpads)
    schedules: Schedules[_C] = subject(Schedules)
    runs: Runs[_C] = subject(Runs)
    reminders: Reminders[_C] = subject(Reminders)
    notifications: Notifications[_C] = subject(Notifications)
    curation: Curation[_C] = subject(Curation)
    memory_files: MemoryFiles[_C] = subject(MemoryFiles)
    admin: Admin[_C] = subject(Admin)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Name the method that has replaced an old one, or that other programs call so."""
            text = f"{type(self).__name__!r} has no attribute {name!r}"
            if name in OLD_NAMES:
                raise AttributeError(f"{text}: it is {OLD_NAMES[name]!r} now")
            near = near_names(name, [one for one in dir(type(self)) if one[0] != "_"])
            raise AttributeError(f"{text}; {near}" if near.startswith("did you mean") else text)


class Reverie(_Calls[SyncClient], SyncClient):
    """A client for the memory of one agent in one workspace.

    It has the calls of an agent's loop itself, and all others by subject, such as `memory.facts.set(...)`.

    Arguments left out are read once from the environment: REVERIE_AGENT, REVERIE_URL, REVERIE_BROKER, REVERIE_TOKEN,
    REVERIE_WORKSPACE and REVERIE_BROKER_PREFIX. Without a URL it finds the running server of this user. Connections are
    opened by the first call. A client may be shared between threads and used after a fork.
    """


class AsyncReverie(_Calls[AsyncClient], AsyncClient):
    """A client for asyncio. Arguments, results and errors are those of `Reverie`; every method must be awaited."""
