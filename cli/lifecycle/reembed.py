"""`reverie db reembed`: embed a workspace with another model, or again with the same one, while recall continues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

import typer

from cli.application import Invocation
from cli.lifecycle.database import Everything, OfAccount, chosen, database
from cli.output import AsJson, StoreProgress, note, print_result, print_table, say, shown_progress
from reverie.counts import counted
from reverie.errors import Rejected

if TYPE_CHECKING:
    from adapters.embedders.base import Embedder, EmbedderSpec, Provider
    from adapters.embedders.record import EmbedderRecord
    from memory.pipeline.reembedding import ReembedReport, ReembedStart
    from storage.stores import Store

_PROVIDERS: Final[tuple[Provider, ...]] = ("sentence-transformers", "model2vec", "openai", "hash")
_INTERRUPTED: Final = 130


@dataclass(frozen=True, slots=True)
class _Options:
    """The embedder named on the command line. Without any option, the workspace's own model embeds again."""

    provider: str | None
    model: str | None
    dimension: int | None
    base_url: str | None

    @property
    def any_given(self) -> bool:
        return any(value is not None for value in (self.provider, self.model, self.dimension, self.base_url))


@database.command("reembed")
def reembed(
    command: Invocation,
    model: Annotated[str | None, typer.Option(help="The name of the model, or the path of its folder.")] = None,
    provider: Annotated[
        str | None,
        typer.Option(help=f"The provider: {', '.join(_PROVIDERS)}.", show_default="as in the settings"),
    ] = None,
    dimension: Annotated[
        int | None, typer.Option(min=1, max=8192, help="The dimensions to request from an endpoint.")
    ] = None,
    base_url: Annotated[str | None, typer.Option(help="The URL of an OpenAI-compatible endpoint, up to /v1.")] = None,
    everything: Everything = False,
    account: OfAccount = False,
    as_json: AsJson = False,
) -> None:
    """Embed again, with another model or the same one, while recall continues. An interrupted run can be continued."""
    from worker.model_specs import embedder_spec

    options = _Options(provider, model, dimension, base_url)
    settings = embedder_spec(command.settings)
    chosen_spec = _spec_from_options(options, settings) if options.any_given else None
    load = cache(load_embedder)  # workspaces with the same model share one
    progress = StoreProgress()
    reports: dict[str, ReembedReport] = {}
    specs: dict[str, EmbedderSpec] = {}
    with _interruptible(progress):
        for name in chosen(command, everything, account=account):
            store = command.runtime.stores.workspace(name, create=False)
            spec = specs[name] = chosen_spec or _spec_of_workspace(store, settings)
            reports[name] = _reembed(command, store, *load(spec), anew=chosen_spec is None, progress=progress)
    listed = {name: asdict(report) for name, report in reports.items()}
    print_result(listed, as_json, lambda: _show(reports, specs, command))


def _reembed(
    command: Invocation,
    store: Store,
    embedder: Embedder,
    record: EmbedderRecord,
    *,
    anew: bool,
    progress: StoreProgress,
) -> ReembedReport:
    from adapters.embedders.record import EmbedderRecord
    from memory.pipeline.embedding import BATCH_CHUNKS
    from memory.pipeline.reembedding import ReembedControl, ReembedTarget
    from memory.pipeline.reembedding import reembed as embed_anew
    from worker.model_specs import embedder_spec
    from worker.pipeline import embed_batch_size

    runtime = command.runtime
    settings = embedder_spec(command.settings)
    progress.store, progress.done, progress.total = store.name, 0, 0
    with shown_progress(f"{store.name}: {record.model}") as show:

        def show_progress(done: int, total: int) -> None:
            progress.done, progress.total = done, total
            show(done, total)

        report = embed_anew(
            store,
            ReembedTarget(
                embedder,
                record,
                force=anew,
                configured=EmbedderRecord.from_embedder(settings, runtime.embedder) if runtime.embedder else None,
            ),
            now=runtime.now,
            control=ReembedControl(
                batch_size=embed_batch_size(BATCH_CHUNKS, embedder),
                on_start=lambda start: _print_start(store, start),
                progress=show_progress,
            ),
        )
    if report.left_to_workers:
        runtime.notify_stage("embed", store.name)
    return report


def _spec_from_options(options: _Options, settings: EmbedderSpec) -> EmbedderSpec:
    """Return the embedder that the options name, completed from the settings. Raises `Rejected`."""
    provider = options.provider or settings.provider
    if provider not in _PROVIDERS:
        raise Rejected(f"--provider: {provider!r} is none of {', '.join(_PROVIDERS)}", field="provider")
    same = provider == settings.provider
    if options.model is None and not same and provider != "hash":
        raise Rejected(f"--provider {provider} needs --model", field="model")
    spec = replace(
        settings,
        provider=provider,
        model=settings.model if options.model is None else _resolved(options.model),
        base_url=options.base_url or (settings.base_url if same else None),
        dimension=options.dimension or (settings.dimension if same and options.model is None else None),
    )
    _check_endpoint(spec, options)
    return spec


def _check_endpoint(spec: EmbedderSpec, options: _Options) -> None:
    if spec.provider != "openai":
        if options.base_url is not None:
            raise Rejected("--base-url is for --provider openai", field="base_url")
        return
    url = urlsplit(spec.base_url or "")
    if url.scheme not in ("http", "https") or not url.hostname:
        raise Rejected("--base-url: the provider openai needs it, as in http://localhost:11434/v1", field="base_url")
    if url.username or url.password:  # it is written into the database, and into every copy of it
        raise Rejected(
            "--base-url must not contain a password: set REVERIE_EMBEDDING_API_KEY instead", field="base_url"
        )


def _resolved(model: str) -> str:
    """Return a folder as an absolute path, because other processes load it; return any other name unchanged."""
    folder = Path(model)
    return str(folder.resolve()) if (folder / "config.json").is_file() or (folder / "modules.json").is_file() else model


def _spec_of_workspace(store: Store, settings: EmbedderSpec) -> EmbedderSpec:
    """Return the embedder of a workspace; during a change, the new one. Raises `Rejected`."""
    from adapters.embedders.record import EmbedderRecord, ForeignEndpoint

    with store.reading() as tx:
        generation = tx.index.changing() or tx.index.active("vector")
    record = EmbedderRecord.decode(generation.embedder) if generation else None
    if record is not None:
        try:
            return record.spec(settings)
        except ForeignEndpoint as error:
            raise Rejected(str(error), field="embedding_base_url") from error
    if settings.provider == "none":
        raise Rejected("the settings select no embedder: select one with --provider and --model", field="provider")
    return settings


def load_embedder(spec: EmbedderSpec) -> tuple[Embedder, EmbedderRecord]:
    """Load an embedder and embed one text with it, so that a mistake shows before anything is changed."""
    from adapters.embedders.record import EmbedderRecord, build_embedder

    try:
        embedder = build_embedder(spec)
    except ValueError as error:
        raise Rejected(str(error), field="embedder") from error
    assert embedder is not None, "the provider `none` was refused before"
    embedder.load()
    length = len(embedder.embed_query("Does it answer?"))
    if spec.dimension is not None and length != spec.dimension:
        raise Rejected(f"--dimension: {embedder.model} has {length}, not {spec.dimension}", field="dimension")
    return embedder, EmbedderRecord.from_embedder(spec, embedder)


@contextmanager
def _interruptible(progress: StoreProgress) -> Iterator[None]:
    """Print the progress in one line after Ctrl-C, and add it to the error of an endpoint that does not answer."""
    from adapters.embedders.base import EmbedderUnavailable

    try:
        yield
    except EmbedderUnavailable as error:
        if not progress.total:
            raise
        raise EmbedderUnavailable(f"{error} ({_progress_text(progress)})") from error
    except KeyboardInterrupt:
        note(f"reverie: interrupted; {_progress_text(progress)}")
        raise typer.Exit(_INTERRUPTED) from None


def _progress_text(progress: StoreProgress) -> str:
    if not progress.total:
        return "nothing was embedded"
    count = f"{progress.done:,} of {counted(progress.total, 'chunk')} done"
    return f"{progress.store}: {count}, `reverie db reembed` continues from there"


def _print_start(store: Store, start: ReembedStart) -> None:
    """Print what happens to an unfinished change before embedding starts."""
    if start.dropped:
        note(f"{store.name}: the unfinished change to {start.dropped} is abandoned")
    if start.resumed and start.change is None:
        note(f"{store.name}: removing the remains of the change to {start.new}; nothing is embedded")
    elif start.resumed:
        note(f"{store.name}: resuming the unfinished change to {start.new}")


def _show(reports: dict[str, ReembedReport], specs: dict[str, EmbedderSpec], command: Invocation) -> None:
    from worker.model_specs import embedder_spec

    print_table(
        ("workspace", "from", "to", "numbers", "embedded", "left to workers", "old removed"),
        [
            (name, r.old or "-", r.new, r.dimension, r.embedded, r.left_to_workers, r.old_vectors_removed)
            for name, r in reports.items()
        ],
        empty="there are no workspaces yet",
    )
    configured = command.runtime.embedder
    others = {
        specs[name]
        for name, report in reports.items()
        if configured is None or not _is_revision(report.new, configured.model)
    }
    for changes in sorted(filter(None, (_changed_settings(spec, embedder_spec(command.settings)) for spec in others))):
        say(f"New workspaces still use the model in the settings: {changes} there too.")


def _changed_settings(spec: EmbedderSpec, settings: EmbedderSpec) -> str:
    """Return how to select an embedder by the settings: which of them to change, and to what."""
    selected: dict[str, tuple[str, str]] = {"embedding_provider": (spec.provider, settings.provider)}
    if spec.provider != "hash":
        selected["embedding_model"] = (spec.model, settings.model)
    if spec.provider == "openai":
        selected["embedding_base_url"] = (spec.base_url or "", settings.base_url or "")
    changes = [f"set {name} to {value}" for name, (value, present) in selected.items() if value != present]
    if spec.dimension != settings.dimension and (spec.provider == "openai" or settings.dimension is not None):
        changes.append(f"set embedding_dimension to {spec.dimension or 'none'}")
    return " and ".join(changes)


def _is_revision(name: str, model: str) -> bool:
    return name == model or name.startswith(f"{model}@")
