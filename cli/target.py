"""Find which Reverie a command is for, and send its calls: to the server that runs, or to its handlers in this process.

It reads only the few settings that this needs: loading all of them takes longer than a whole call to the server.
"""

from __future__ import annotations

import dataclasses
import os
import time
import tomllib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from cli.output import note
from reverie import __version__, contract
from reverie.calls import Call, route_of, scope_of
from reverie.checks import check_workspace
from reverie.config import resolve_config
from reverie.connection import HttpTransport
from reverie.errors import Conflict, NotFound, Unavailable
from reverie.types import Deleted
from worker.data_folder import find_data_folder, nearest_data_folder, running_stacks, user_data_folder
from worker.own_paths import check_own
from worker.supervision.data_lock import supervisor_pid
from worker.supervision.server_file import ServerFile, running_server

if TYPE_CHECKING:
    from server.app import InProcess
    from worker.runtime import Runtime

PREFIX: Final = "REVERIE_"
# Longer than a command waits for its answer: a recall while the server still loads its model.
_TIMEOUT_SECONDS: Final = 60.0
_STARTING_SECONDS: Final = 20.0
_POLL_SECONDS: Final = 0.1

_A = TypeVar("_A")


@dataclass(frozen=True)
class Target:
    """The installation of Reverie to use. Flags, environment, `reverie.toml` and the current folder decide it."""

    flags: Mapping[str, Any]
    # Whether to find a stack that runs elsewhere, if no data folder is near: not for a command that starts one.
    look_elsewhere: bool = True

    @cached_property
    def named_data(self) -> Path | None:
        """The data folder that a flag, the environment or `reverie.toml` names."""
        named = self._setting("data")
        return None if named is None else Path(named)

    @cached_property
    def data(self) -> Path | None:
        """The data folder: the named one, the nearest upwards, that of the running stack, or the user's own.

        None if there is none of these yet. If several stacks run, it is the folder of the one that `REVERIE_URL` names.

        Raises `Conflict` when none is near, several stacks run and `REVERIE_URL` is not set, `Rejected` for one that
        another user may have left.
        """
        if self.named_data is not None:
            return self.named_data
        if not self.look_elsewhere:
            return nearest_data_folder(Path.cwd())
        try:
            return find_data_folder(Path.cwd())
        except Conflict:
            if self._named_url is None:
                raise
            servers = {Path(stack.data): running_server(Path(stack.data)) for stack in running_stacks()}
            return next((data for data, server in servers.items() if server and server.url == self._named_url), None)

    @cached_property
    def server(self) -> ServerFile | None:
        """The server that runs on the data folder."""
        return None if self.data is None else running_server(self.data)

    @property
    def is_starting(self) -> bool:
        """Whether a stack runs on the data folder, and its server does not answer, or does not answer yet."""
        return self.server is None and self.has_supervisor

    @property
    def has_supervisor(self) -> bool:
        """Whether a stack runs on the data folder. Raises `Unavailable` for a folder without rights."""
        if self.data is None:
            return False
        try:
            return supervisor_pid(self.data) is not None
        except OSError as error:
            raise _unusable(self.data, error) from error

    @cached_property
    def url(self) -> str | None:
        """The URL of the server to ask; None if none is running.

        `REVERIE_URL` names one, unless `--data` names a data folder: then only the server on that folder is asked.
        """
        if self._named_url is not None:
            return self._named_url
        return None if self.server is None else self.server.url

    @property
    def _named_url(self) -> str | None:
        return (os.environ.get(PREFIX + "URL") or None) if self.flags.get("data") is None else None

    @property
    def is_remote(self) -> bool:
        """Whether `REVERIE_URL` names the server, whose data folder is not known here."""
        return self.url is not None and (self.server is None or self.url != self.server.url)

    @cached_property
    def workspace(self) -> str:
        """The named workspace, or else the default one of the server that runs."""
        default = contract.DEFAULT_WORKSPACE if self.server is None else self.server.workspace
        named = self._setting("workspace")
        return check_workspace(default if named is None else named)

    @property
    def names_workspace(self) -> bool:
        """Whether a workspace is named. If none is, it is the default workspace."""
        return self._setting("workspace") is not None

    @property
    def token(self) -> str | None:
        """The token of this user for the server on the data folder; None if `REVERIE_TOKEN` names the one to send.

        Raises `Rejected` for a file that others can read.
        """
        if self.data is None or self.is_remote:
            return None
        if self.flags.get("data") is None and os.environ.get(PREFIX + "TOKEN"):
            return None
        from worker.supervision.local_token import read_local_token

        return read_local_token(self.data)

    def transport(
        self, *, agent: str, agent_named: bool, user: str | None = None, timeout_seconds: float
    ) -> HttpTransport:
        """Return a transport to the server, for an agent, which is `agent_named` unless it is the default."""
        config = resolve_config(
            agent=agent,
            url=self.url,
            broker=None,
            token=self.token,
            workspace=self.workspace,
            prefix=None,
            timeout_seconds=timeout_seconds,
        )
        if self.token is None:  # a token in the environment may be bound to an agent
            config = dataclasses.replace(config, agent_named=agent_named, workspace_named=self.names_workspace)
        return HttpTransport(dataclasses.replace(config, user=user))

    def existing_data(self) -> Path:
        """Return the data folder. A named one is created if the content is in a PostgreSQL database.

        Raises `NotFound` if there is no data folder, saying how to get one.
        """
        try:
            if self.named_data is not None and self._setting("database"):
                from storage.private_files import make_data_folder

                make_data_folder(self.named_data)
            if self.data is not None and self.data.is_dir():
                os.scandir(self.data).close()
                return self.data
        except OSError as error:
            assert self.data is not None
            raise _unusable(self.data, error) from error
        place = f"at {self.data}"
        if self.data is None:
            place = f"in {Path.cwd()} or above it, nor at {user_data_folder()}, and none is running"
        raise NotFound(
            f"there is no data folder {place}: start Reverie with `reverie up`, or name a folder with --data",
            field="data",
        )

    def _setting(self, name: str) -> Any:
        """Return the value of a setting from the flags, the environment or the file; None if none names it."""
        flag = self.flags.get(name)
        return flag if flag is not None else os.environ.get(PREFIX + name.upper()) or self._file.get(name)

    @cached_property
    def _file(self) -> dict[str, Any]:
        """The settings in the file. For one that cannot be read, all settings are loaded, which raises the error."""
        path = Path(os.environ.get(PREFIX + "CONFIG") or "reverie.toml")
        if path.exists() and not os.environ.get(PREFIX + "CONFIG"):
            check_own(path, what="settings file", instead=f"To use it as it is, set {PREFIX}CONFIG", field="config")
        try:
            return tomllib.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            if not os.environ.get(PREFIX + "CONFIG"):
                return {}
        except (OSError, ValueError):
            pass
        from worker.settings import load_settings

        load_settings()
        return {}


def _unusable(data: Path, error: OSError) -> Unavailable:
    return Unavailable(
        f"the data folder {data} cannot be used ({error.strerror}): run the command as the user who owns it,"
        " or name another folder with --data"
    )


class Sender:
    """Sends the calls of one command."""

    def __init__(self, target: Target, runtime: Callable[[], Runtime], *, agent: str, agent_named: bool = True) -> None:
        self._target = target
        self._runtime = runtime
        self._agent = agent
        self._agent_named = agent_named
        self._closing = ExitStack()
        self._noted = False

    def send(self, call: Call[_A]) -> _A:
        """Send a call. Raises what the server raises, `NotFound` where there is no data folder, and `Unavailable`."""
        if self._target.url is None and self._target.is_starting:
            self._target = self._started()
        if self._target.url is not None:
            return self._http.send(call)
        writes = route_of(type(call)).method != "GET" and scope_of(type(call)) != "read"
        # Only a folder that the user has named is created, and only by a command that writes.
        data = self._target.named_data if writes and self._target.named_data else self._target.existing_data()
        response = self.answer(call)
        # No note for a deletion, after which nothing has to be indexed.
        if not self._noted and not isinstance(response, Deleted):
            files, are = ("files", "are") if self._runtime().settings.database is None else ("database", "is")
            read, changed = f"this is read from its {files}", f"its {files} {are} changed, and indexed once one runs"
            note(f"reverie: no Reverie runs on {data}: {changed if writes else read} (`reverie up`)")
            self._noted = True
        return response

    def answer(self, call: Call[_A], *, workspace: str | None = None) -> _A:
        """Answer a call in this process, also where a server runs. Raises what the server raises."""
        return self._in_process.send(call, agent=self._agent, workspace=workspace or self._target.workspace)

    def close(self) -> None:
        """Close the connections and files."""
        self._closing.close()

    @cached_property
    def _http(self) -> HttpTransport:
        server = self._target.server
        if server is not None and server.version != __version__:
            note(
                f"reverie: the server at {server.url} is of version {server.version}, this command of {__version__}:"
                " restart it with the `reverie up` of this version, or use the command of its version"
            )
        transport = self._target.transport(
            agent=self._agent, agent_named=self._agent_named, timeout_seconds=_TIMEOUT_SECONDS
        )
        self._closing.callback(transport.close)
        return transport

    @cached_property
    def _in_process(self) -> InProcess:
        from server.app import InProcess

        return self._closing.enter_context(InProcess(self._runtime()))

    def _started(self) -> Target:
        """Return the target once its server answers. Raises `Unavailable` when it does not in time."""
        deadline = time.monotonic() + _STARTING_SECONDS
        target = self._target
        while target.url is None and target.is_starting:
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"Reverie runs on {target.data}, but its server does not answer: see the logs in {target.data}/logs"
                )
            time.sleep(_POLL_SECONDS)
            target = Target(target.flags)
        return target
