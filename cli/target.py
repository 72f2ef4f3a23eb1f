"""Find which Reverie a command is for: the data folder, and the server that answers for it.

Reads only what this takes, not all settings: loading those costs more than a whole call to the server.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from reverie import contract
from reverie.checks import check_workspace
from reverie.errors import NotFound, Unavailable
from worker.data_folder import find_data_folder, nearest_data_folder, user_data_folder
from worker.own_paths import check_own
from worker.supervision.data_lock import supervisor_pid
from worker.supervision.server_file import ServerFile, running_server

_PREFIX: Final = "REVERIE_"


@dataclass(frozen=True)
class Target:
    """What the flags, the environment, `reverie.toml` and the current folder say about the Reverie to use."""

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

        None if there is none of these yet.

        Raises `Conflict` when none is near and several stacks run, `Rejected` for one that another user may have left.
        """
        if self.named_data is not None:
            return self.named_data
        return find_data_folder(Path.cwd()) if self.look_elsewhere else nearest_data_folder(Path.cwd())

    @cached_property
    def server(self) -> ServerFile | None:
        """The server that runs on the data folder."""
        return None if self.data is None else running_server(self.data)

    @property
    def is_starting(self) -> bool:
        """Whether a stack runs on the data folder whose server does not answer yet, or not at this moment."""
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
        if self.flags.get("data") is None and (url := os.environ.get(_PREFIX + "URL")):
            return url
        return None if self.server is None else self.server.url

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
        """Whether the workspace is named, or else the default."""
        return self._setting("workspace") is not None

    @property
    def token(self) -> str | None:
        """The token of this user for the server on the data folder; None if `REVERIE_TOKEN` names the one to send.

        Raises `Rejected` for a file that others can read.
        """
        if self.data is None or self.is_remote:
            return None
        if self.flags.get("data") is None and os.environ.get(_PREFIX + "TOKEN"):
            return None
        from worker.supervision.local_token import read_local_token

        return read_local_token(self.data)

    def existing_data(self) -> Path:
        """Return the data folder; one that is named is created where a database has the content.

        Raises `NotFound`, saying how to get one, when there is none.
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
        return flag if flag is not None else os.environ.get(_PREFIX + name.upper()) or self._file.get(name)

    @cached_property
    def _file(self) -> dict[str, Any]:
        """The settings in the file; loading all settings says what is wrong with one that cannot be read."""
        path = Path(os.environ.get(_PREFIX + "CONFIG") or "reverie.toml")
        if path.exists() and not os.environ.get(_PREFIX + "CONFIG"):
            check_own(path, what="settings file", instead=f"To use it as it is, set {_PREFIX}CONFIG", field="config")
        try:
            return tomllib.loads(path.read_text("utf-8"))
        except FileNotFoundError:
            if not os.environ.get(_PREFIX + "CONFIG"):
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
