"""Checks that files which were found, not named by the user, are the user's own: nobody else could have written them.

A settings file or data folder in the current folder decides which model, broker and server get the user's texts and
keys. In a folder that other users can write to, one of them could have left such a file. The rules are those of
OpenSSH's StrictModes: the file and every folder above it belong to the user or to root, and only their owner can write
to them. A folder with the sticky bit, such as /tmp, may be writable by all, since nobody can replace another's files
there.
"""

from __future__ import annotations

import grp
import os
import pwd
import shlex
import stat
from functools import cache
from pathlib import Path

from reverie.errors import Rejected


def check_own(path: Path, *, what: str, instead: str, field: str) -> None:
    """Raise `Rejected` if somebody else could have written a file or folder.

    `what` names the kind of path, as in "settings file"; `instead` is a sentence that says how to name the path
    explicitly, to use it anyway. If a path does not exist, the existing folders above it are checked.
    """
    reason = _reason(path)
    if reason is not None:
        raise Rejected(f"the {what} {path} was found here, but is not used: {reason}. {instead}", field=field)


def _reason(path: Path) -> str | None:
    """Return why a path cannot be trusted, with what to do about it; None if it can."""
    # A symbolic link is as safe as its folder and its target.
    real, folder = path.resolve(), path.absolute().parent.resolve()
    places = dict.fromkeys((real, *real.parents, folder, *folder.parents))
    # The root folder is not checked: a user who can write to it can do everything anyway.
    for place in (one for one in places if one != one.parent):
        try:
            status = place.stat()
        except FileNotFoundError:
            continue
        except OSError as error:
            return f"{place} cannot be checked ({error.strerror})"
        if status.st_uid not in (0, os.geteuid()) and not _is_unmapped(status.st_uid):
            return (
                f"{place} belongs to {_user(status.st_uid)}: move it, or run `chown {_user(os.geteuid())} {_q(place)}`"
            )
        shared = place != real and stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        if not shared and _others_can_write(status):
            return f"other users can write to {place}: run `chmod go-w {_q(place)}`"
    return None


def _others_can_write(status: os.stat_result) -> bool:
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _is_private_group(status.st_gid)


@cache
def _is_private_group(gid: int) -> bool:
    """Return whether a group is the user's private one: systems with such groups make files writable for them."""
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return user.pw_gid == gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


@cache
def _is_unmapped(uid: int) -> bool:
    """Return whether an owner is unknown here because this process is in a user namespace, such as a sandbox's."""
    try:
        overflow = int(Path("/proc/sys/kernel/overflowuid").read_text(encoding="ascii"))
        mapped = [int(line.split()[2]) for line in Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines()]
    except (OSError, ValueError, IndexError):
        return False
    return uid == overflow and sum(mapped) < 2**32 - 1


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"the user {uid}"


def _q(path: Path) -> str:
    return shlex.quote(str(path))
