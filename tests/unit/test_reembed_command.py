"""`reverie db reembed`: what it says, what it refuses in one line, and what an interruption leaves."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import cli
from adapters.embedders.base import EmbedderSpec, EmbedderUnavailable, HashEmbedder
from cli.lifecycle import reembed as command
from memory.pipeline.chunking import chunk_messages
from reverie.contract import ACCOUNT_STORE
from storage.verify import verify
from support.knowing import Knowing
from support.pipeline import WORKSPACE, Pipeline

pytestmark = pytest.mark.slow


class Ended(NamedTuple):
    code: int
    out: str
    err: str


Reverie = Callable[..., Ended]


class Model(HashEmbedder):
    """A model of any name, which may be interrupted or away after so many batches."""

    fails: Exception | type[BaseException] | None = None
    after = 0

    def __init__(self, name: str) -> None:
        self.model = name  # type: ignore[misc]
        self.batches = 0

    def load(self) -> None:
        if self.model == "missing":
            raise EmbedderUnavailable("model 'missing' is not a folder here")

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.batches += 1
        if self.fails is not None and self.batches > 1 + self.after:  # the first asks whether it is there
            raise self.fails
        return super().embed(texts)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipeline]:
    """Twenty chunks with vectors of the settings' model."""
    pipe = Pipeline(tmp_path / "data")
    pipe.say(*[f"zanzibar {number}" for number in range(20)])
    pipe.settle()
    yield pipe
    pipe.close()


@pytest.fixture
def reverie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Reverie:
    """Runs the command with models of any name, ten chunks a batch, in a folder without settings."""

    def build(spec: EmbedderSpec) -> HashEmbedder:
        if spec.provider == "openai" and not spec.base_url:
            raise ValueError("the openai embedder needs base_url")
        return HashEmbedder() if spec.provider == "hash" else Model(spec.model)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    monkeypatch.setenv("REVERIE_EMBEDDING_PROVIDER", "hash")
    monkeypatch.setattr("adapters.embedders.record.build_embedder", build)
    monkeypatch.setattr("memory.pipeline.embedding.BATCH_CHUNKS", 10)
    monkeypatch.setattr("memory.pipeline.reembedding._WAITS_SECONDS", ())

    def run(*arguments: str, command: str = "reembed") -> Ended:
        common = ["--data", str(tmp_path / "data"), "--workspace", WORKSPACE]
        monkeypatch.setattr(sys, "argv", ["reverie", *common, "db", command, *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return Ended(int(ended.value.code or 0), out, err)

    return run


def models(pipe: Pipeline) -> list[tuple[str, str, int]]:
    with pipe.store.reading() as tx:
        return [(g.model, g.state, len(tx.index.vector_ids(g))) for g in tx.index.generations() if g.kind == "vector"]


def test_another_model_is_named_and_what_was_done_is_told(reverie: Reverie, pipe: Pipeline) -> None:
    """Given a model on the command line, then it is that of the workspace, and the settings are spoken of."""
    ended = reverie("--provider", "sentence-transformers", "--model", "mine")
    assert (ended.code, ended.err) == (0, "")
    assert "hash-64  mine  64       20" in ended.out
    assert "set embedding_model to mine there too" in ended.out
    assert models(pipe) == [("mine", "active", 20)]
    assert verify(pipe.store).wrong == []
    again = json.loads(reverie("--provider", "sentence-transformers", "--model", "mine", "--json").out)
    assert (again[WORKSPACE]["embedded"], again[WORKSPACE]["new"], again[WORKSPACE]["finished"]) == (0, "mine", True)


@pytest.mark.usefixtures("pipe")
def test_all_settings_that_differ_are_advised(reverie: Reverie) -> None:
    """Given another provider, then the advice names it, and no model where the provider has none to choose."""
    ended = reverie("--provider", "model2vec", "--model", "mine")
    assert "set embedding_provider to model2vec and set embedding_model to mine there too" in ended.out
    default = EmbedderSpec(provider="sentence-transformers", model="all-MiniLM-L6-v2", dimension=384)
    hashing = EmbedderSpec(provider="hash", model="all-MiniLM-L6-v2")
    endpoint = EmbedderSpec(provider="openai", model="small", base_url="http://localhost/v1", dimension=64)
    assert (
        command._changed_settings(hashing, default)
        == "set embedding_provider to hash and set embedding_dimension to none"
    )
    assert command._changed_settings(endpoint, hashing) == (
        "set embedding_provider to openai and set embedding_model to small"
        " and set embedding_base_url to http://localhost/v1 and set embedding_dimension to 64"
    )


def test_without_a_model_the_one_that_the_workspace_has_is_embedded_anew(reverie: Reverie, pipe: Pipeline) -> None:
    """Given no options, then every chunk is embedded once more, with the workspace's model and not the settings'."""
    assert json.loads(reverie("--json").out)[WORKSPACE]["new"] == "hash-64@2"
    reverie("--provider", "model2vec", "--model", "mine")
    assert json.loads(reverie("--all", "--json").out)[WORKSPACE]["new"] == "mine@2"
    assert models(pipe) == [("mine@2", "active", 20)]
    assert verify(pipe.store).wrong == []


def test_the_account_is_looked_after_like_a_workspace(reverie: Reverie, pipe: Pipeline) -> None:
    """Given a memory of the account's tier, then --account is about its store alone, and --all takes it in."""
    knowing = Knowing(pipe.stores, workspace=WORKSPACE)
    knowing.remember("likes short answers", tier="account", kind="preference")
    account = pipe.stores.account_store()
    chunk_messages(account, now=pipe.now, on_batch=lambda _: None)
    assert json.loads(reverie("--account", "--json", command="verify").out)["counts"].keys() == {ACCOUNT_STORE}
    assert json.loads(reverie("--account", "--json", command="reindex").out)[ACCOUNT_STORE]["text"] == 1
    everywhere = json.loads(reverie("--all", "--provider", "model2vec", "--model", "mine", "--json").out)
    assert {name: report["new"] for name, report in everywhere.items()} == {ACCOUNT_STORE: "mine", WORKSPACE: "mine"}
    anew = json.loads(reverie("--account", "--json").out)
    assert {name: report["new"] for name, report in anew.items()} == {ACCOUNT_STORE: "mine@2"}
    status = {line["name"]: line for line in json.loads(reverie("--json", command="status").out)}
    assert (status[ACCOUNT_STORE]["model"], status[WORKSPACE]["model"]) == ("mine@2", "mine")
    assert status[ACCOUNT_STORE]["schema"] == status[ACCOUNT_STORE]["newest"]
    assert verify(account).wrong == []
    both = reverie("--account", "--all")
    assert (both.code, both.err) == (2, "reverie: give --all or --account: --all includes the account\n")


def test_an_interruption_says_how_far_it_came_and_without_options_it_is_gone_on_with(
    reverie: Reverie, pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given Ctrl-C after one batch, then there is one line, and the same command without a model finishes it."""
    with monkeypatch.context() as patch:
        patch.setattr(Model, "fails", KeyboardInterrupt)
        patch.setattr(Model, "after", 1)
        ended = reverie("--provider", "model2vec", "--model", "mine")
    line = "reverie: interrupted; ws: 10 of 20 chunks done, `reverie db reembed` continues from there\n"
    assert ended == Ended(130, "", line)
    assert models(pipe) == [("hash-64", "active", 20), ("mine", "building", 10)]
    ended = reverie("--json")
    assert ended.err == "ws: resuming the unfinished change to mine\n"
    report = json.loads(ended.out)[WORKSPACE]
    assert (report["embedded"], report["resumed"], report["new"]) == (10, True, "mine")
    assert models(pipe) == [("mine", "active", 20)]


def test_an_endpoint_that_goes_away_is_one_line_with_how_far_it_came(
    reverie: Reverie, pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given an endpoint that is down after one batch, then the exit code is 1 and the state is kept."""
    monkeypatch.setattr(Model, "fails", EmbedderUnavailable("the endpoint is down"))
    monkeypatch.setattr(Model, "after", 1)
    ended = reverie("--provider", "openai", "--model", "mine", "--base-url", "http://localhost:1/v1")
    assert (ended.code, ended.err.count("\n")) == (1, 1)
    assert "the endpoint is down (ws: 10 of 20 chunks done" in ended.err
    assert models(pipe) == [("hash-64", "active", 20), ("mine", "building", 10)]


@pytest.mark.parametrize(
    ("wanted", "model"),
    [(["--provider", "model2vec", "--model", "other"], "other"), (["--provider", "hash"], "hash-64")],
    ids=["for another model", "for the old one"],
)
def test_a_half_done_change_is_given_up_with_a_line(
    reverie: Reverie, pipe: Pipeline, monkeypatch: pytest.MonkeyPatch, wanted: list[str], model: str
) -> None:
    """Given an unfinished change, when another model is named, or the one that is searched, then that one it is."""
    with monkeypatch.context() as patch:
        patch.setattr(Model, "fails", KeyboardInterrupt)
        patch.setattr(Model, "after", 1)
        reverie("--provider", "model2vec", "--model", "mine")
    ended = reverie(*wanted)
    assert (ended.code, ended.err) == (0, "ws: the unfinished change to mine is abandoned\n")
    assert models(pipe) == [(model, "active", 20)]
    assert verify(pipe.store).wrong == []


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--model", "missing", "--provider", "sentence-transformers"], 1, "model 'missing' is not a folder here"),
        (["--provider", "crystal", "--model", "m"], 2, "--provider: 'crystal' is none of sentence-transformers"),
        (["--provider", "none"], 2, "'none' is none of"),
        (["--provider", "model2vec"], 2, "--provider model2vec needs --model"),
        (["--provider", "openai", "--model", "m"], 2, "--base-url: the provider openai needs it"),
        (["--model", "m", "--base-url", "http://x/v1"], 2, "--base-url is for --provider openai"),
        (
            ["--provider", "openai", "--model", "m", "--base-url", "http://me:secret@x/v1"],
            2,
            "--base-url must not contain a password: set REVERIE_EMBEDDING_API_KEY instead",
        ),
        (["--provider", "model2vec", "--model", "m", "--dimension", "65"], 2, "--dimension: m has 64, not 65"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line_before_anything_is_begun(
    reverie: Reverie, pipe: Pipeline, options: list[str], code: int, says: str
) -> None:
    """Given an embedder that cannot be had, then the line says why, and the workspace is as it was."""
    ended = reverie(*options)
    assert (ended.code, ended.err.count("\n")) == (code, 1)
    assert says in ended.err
    assert models(pipe) == [("hash-64", "active", 20)]


def test_settings_without_an_embedder_need_one_on_the_command_line(
    reverie: Reverie, pipe: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given the provider none, then it is asked for."""
    monkeypatch.setenv("REVERIE_EMBEDDING_PROVIDER", "none")
    ended = reverie()
    assert (ended.code, "select one with --provider and --model" in ended.err) == (2, True)


def test_a_folder_is_written_down_with_its_whole_path(reverie: Reverie, pipe: Pipeline, tmp_path: Path) -> None:
    """Given a model's folder named from here, then processes that run elsewhere find it too."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "config.json").touch()
    report = json.loads(reverie("--provider", "model2vec", "--model", "folder", "--json").out)[WORKSPACE]
    assert report["new"] == str(tmp_path / "folder")


def test_the_status_of_the_databases_names_the_model_and_the_one_to_come(
    pipe: Pipeline, reverie: Reverie, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given a change of the model that was interrupted, and then finished, then `db status` tells both."""
    monkeypatch.setattr(Model, "fails", KeyboardInterrupt)
    reverie("--model", "another", "--provider", "model2vec")
    (row,) = json.loads(reverie("--json", command="status").out)
    assert (row["model"], row["next_model"]) == (HashEmbedder().model, "another")
    monkeypatch.setattr(Model, "fails", None)
    reverie("--model", "another", "--provider", "model2vec")
    (row,) = json.loads(reverie("--json", command="status").out)
    assert (row["model"], row["next_model"]) == ("another", "")
