"""A folder that holds backups: `repository.json`, `blocks/`, `manifests/`, and what is being written in `drafts/`.

The content of a file is split into blocks, each stored once under its hash, so that a second backup adds only what
changed. Each file here is written as a draft, flushed to the disk, and then renamed, so it is always complete. The
manifest is written last, and with it the backup exists; a backup that is interrupted before that leaves only blocks
that no manifest names, and the next backup removes them.

Blocks and manifests are compressed, and encrypted if the repository has a key. The cryptography is that of the library
`cryptography`: scrypt (RFC 7914) makes a key of the passphrase, which opens the random key of the repository; HKDF
(RFC 5869) derives one key for contents and one for addresses from that; contents are sealed by AES-256-GCM with a
random nonce, bound to their names, so that none can be put in the place of another.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import hmac
import os
import secrets
import shutil
import stat
import sys
import tarfile
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from adapters.backups.manifest import (
    MAX_MANIFEST_BYTES,
    BackupFile,
    BackupTime,
    Manifest,
    decode_manifest,
    encode_manifest,
)
from adapters.kept_secrets import make_folders, sync_folder, write_synced
from reverie.errors import Conflict, NotFound, Rejected, StoreUnavailable, StoreUnusable

_AT_FDCWD: Final = -100  # fcntl.h
_RENAME_EXCHANGE: Final = 2  # linux/fs.h


def exchange(one: Path, other: Path) -> None:
    """Exchange two folders of one file system. Raises OSError.

    On Linux the kernel does it in one step. Elsewhere it takes three renames, and a power cut in between leaves the
    first folder under the name of the second with `.moving` appended.
    """
    if not _exchange_at_once(one, other):
        moving = other.with_name(f"{other.name}.moving")
        one.rename(moving)
        other.rename(one)
        moving.rename(other)
    for folder in {one.parent, other.parent}:
        sync_folder(folder)


def _exchange_at_once(one: Path, other: Path) -> bool:
    """Return whether the kernel exchanged the two; False where it cannot."""
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None) if sys.platform == "linux" else None
    if rename is None:
        return False
    return bool(rename(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE) == 0)


def unpack(tar: tarfile.TarFile, folder: Path) -> None:
    """Write the files and folders of an archive, as their owner's alone. Raises `TarError` for anything else in it.

    Python's own filter for this is not in every 3.11.
    """
    for member in tar:
        target = folder / member.name
        if not (member.isfile() or member.isdir()) or not target.resolve().is_relative_to(folder.resolve()):
            raise tarfile.TarError(f"{member.name!r} is no file or folder inside it")
        (target if member.isdir() else target.parent).mkdir(mode=0o700, parents=True, exist_ok=True)
        source = tar.extractfile(member)
        if source is not None:
            with source, os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                shutil.copyfileobj(source, file)
            os.utime(target, (member.mtime, member.mtime))


def prune_repository(repository: Repository, keep: int) -> tuple[list[str], int, int]:
    """Remove the backups older than the newest `keep` complete ones; return their ids, and blocks and bytes freed.

    An incomplete backup does not count, so that a store that has become damaged never loses its last good copy.
    Raises `Rejected`, and removes nothing, if a manifest is damaged.
    """
    manifests, damaged = repository.manifests()
    if damaged:
        raise Rejected(f"{damaged[0].error}: remove the file if it cannot be repaired", field="dest")
    complete = [manifest.number for manifest in manifests if not manifest.failed]
    oldest_kept = complete[-keep] if len(complete) >= keep else 0
    removed = [manifest.id for manifest in manifests if manifest.number < oldest_kept]
    for backup_id in removed:
        repository.remove(backup_id)
    return removed, *repository.remove_unused_blocks()


# Shorter passphrases are refused when a repository is made: whoever copies it can try them without any limit.
MIN_PASSPHRASE_BYTES: Final = 12
# 128 MiB and about 0.4 s for each try: the cost that RFC 7914's author suggests for files.
SCRYPT_COST: Final = 2**17
_SCRYPT_BLOCK: Final = 8
# A manipulated repository must not make us allocate more than 1 GiB.
_MAX_COST: Final = 2**20
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
# Higher levels take twice the time and save a few percent.
_COMPRESSION: Final = 1


class KeySlot(msgspec.Struct, frozen=True, kw_only=True):
    """The key of a repository, sealed by a passphrase. `salt` and `sealed_key` are base64."""

    kdf: str = "scrypt"
    cost: int
    salt: str
    sealed_key: str


class Sealing:
    """Makes the address of a content, and the bytes that are written for it: compressed, and addressed by SHA-256.

    It detects damage, but not changes by somebody who can write the files.
    """

    def address(self, content: bytes) -> str:
        """Return the address of a content: 64 hexadecimal digits, the same for the same content."""
        return hashlib.sha256(content).hexdigest()

    def seal(self, name: str, content: bytes) -> bytes:
        """Return what is written under a name."""
        del name
        return zlib.compress(content, _COMPRESSION)

    def unseal(self, name: str, sealed: bytes, *, max_bytes: int) -> bytes:
        """Return the content that was sealed under a name. Raises `StoreUnusable` for anything else."""
        return _decompress(name, sealed, max_bytes)


class EncryptedSealing(Sealing):
    """Compresses and encrypts. Addresses are keyed hashes, which do not tell whether a known text is in a backup."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._cipher = AESGCM(_derive(key, b"reverie backup contents"))
        self._address_key = _derive(key, b"reverie backup addresses")

    def address(self, content: bytes) -> str:
        """Return the HMAC-SHA-256 of a content."""
        return hmac.digest(self._address_key, content, "sha256").hex()

    def seal(self, name: str, content: bytes) -> bytes:
        """Return the nonce and the sealed, compressed content."""
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, zlib.compress(content, _COMPRESSION), name.encode())

    def unseal(self, name: str, sealed: bytes, *, max_bytes: int) -> bytes:
        """Return the content. Raises `StoreUnusable` if a single bit was changed, or it was sealed under another
        name."""
        from cryptography.exceptions import InvalidTag

        try:
            packed = self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], name.encode())
        except (InvalidTag, ValueError) as error:  # ValueError: too short for a nonce
            raise StoreUnusable(f"{name} of the backup was changed or is damaged: it does not decrypt") from error
        return _decompress(name, packed, max_bytes)


def new_key_slot(secret: bytes) -> tuple[KeySlot, EncryptedSealing]:
    """Return a new random key, sealed by a passphrase or the content of a key file.

    Raises `Rejected` for a secret that is too short.
    """
    if len(secret) < MIN_PASSPHRASE_BYTES:
        raise Rejected(
            f"the passphrase has {len(secret)} bytes; {MIN_PASSPHRASE_BYTES} or more are needed, since whoever copies"
            " the backup can try passphrases without limit",
            field="passphrase",
        )
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    key, salt, nonce = os.urandom(_KEY_BYTES), os.urandom(16), os.urandom(_NONCE_BYTES)
    sealed = nonce + AESGCM(_stretch(secret, salt, SCRYPT_COST)).encrypt(nonce, key, salt)
    slot = KeySlot(cost=SCRYPT_COST, salt=b64encode(salt).decode(), sealed_key=b64encode(sealed).decode())
    return slot, EncryptedSealing(key)


def open_key_slot(slot: KeySlot, secret: bytes) -> EncryptedSealing:
    """Return the sealing of a repository. Raises `Rejected` for a wrong passphrase, `StoreUnusable` for damage."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    if slot.kdf != "scrypt" or not 2 <= slot.cost <= _MAX_COST or slot.cost & (slot.cost - 1):
        raise StoreUnusable(
            f"the backup's key was made by {slot.kdf} with cost {slot.cost}, which this version does not know:"
            " upgrade Reverie, or the file is damaged"
        )
    try:
        salt, sealed = b64decode(slot.salt, validate=True), b64decode(slot.sealed_key, validate=True)
        key = AESGCM(_stretch(secret, salt, slot.cost)).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], salt)
    except InvalidTag:
        raise Rejected("the passphrase or key file is not that of this backup", field="passphrase") from None
    except ValueError as error:  # no base64, or too short
        raise StoreUnusable(f"the backup's key is damaged ({error})") from error
    return EncryptedSealing(key)


def _stretch(secret: bytes, salt: bytes, cost: int) -> bytes:
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    return Scrypt(salt=salt, length=_KEY_BYTES, n=cost, r=_SCRYPT_BLOCK, p=1).derive(secret)


def _derive(key: bytes, purpose: bytes) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    return HKDF(SHA256(), length=_KEY_BYTES, salt=None, info=purpose).derive(key)


def _decompress(name: str, packed: bytes, max_bytes: int) -> bytes:
    """Return the decompressed content, without ever allocating much more than `max_bytes`."""
    unpacking = zlib.decompressobj()
    try:
        content = unpacking.decompress(packed, max_bytes + 1)
    except zlib.error as error:
        raise StoreUnusable(f"{name} of the backup is damaged ({error})") from error
    if len(content) > max_bytes or not unpacking.eof:
        raise StoreUnusable(f"{name} of the backup is damaged: it is cut off, or larger than it can be")
    return content


FORMAT: Final = 1
# Each changed page of a database adds a block. Smaller blocks would make smaller increments, but more files.
BLOCK_BYTES: Final = 256 * 1024
_HEADER: Final = "repository.json"
_LOCK: Final = "lock"
_UNFINISHED: Final = "unfinished"
_FOLDERS: Final = ("blocks", "manifests", "drafts")


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The file `repository.json`: the format, a random id, and the sealed key of an encrypted repository."""

    format: int = FORMAT
    id: str
    created_at: BackupTime
    key: KeySlot | None = None


class Damage(msgspec.Struct, frozen=True):
    """A manifest that cannot be read, and why."""

    id: str
    error: str


class Repository:
    """The backups in a folder, opened by `open_repository`. The caller holds its lock for as long as it uses it."""

    def __init__(self, folder: Path, header: Header, sealing: Sealing) -> None:
        self.folder = folder
        self.header = header
        self._sealing = sealing
        self._created: list[Path] = []

    @property
    def is_encrypted(self) -> bool:
        """Whether the contents are encrypted."""
        return self.header.key is not None

    def ids(self) -> list[str]:
        """Return the ids of all backups, oldest first, as their file names say."""
        return sorted(path.stem for path in (self.folder / "manifests").glob("*.json"))

    def manifest(self, backup_id: str) -> Manifest:
        """Return a backup's manifest. Raises `NotFound`, and `StoreUnusable` for a damaged one."""
        if backup_id not in self.ids():
            raise NotFound(f"{self.folder} has no backup {backup_id!r}: see `reverie backup list`", field="id")
        name = f"manifests/{backup_id}.json"
        content = self._sealing.unseal(
            name, _read(self.folder / name, MAX_MANIFEST_BYTES), max_bytes=MAX_MANIFEST_BYTES
        )
        manifest = decode_manifest(content, name)
        if manifest.id != backup_id or manifest.repository != self.header.id:
            raise StoreUnusable(f"{name} is that of another backup: it was changed")
        return manifest

    def manifests(self) -> tuple[list[Manifest], list[Damage]]:
        """Return all manifests, oldest first, and those that cannot be read."""
        found: list[Manifest] = []
        damaged: list[Damage] = []
        for backup_id in self.ids():
            try:
                found.append(self.manifest(backup_id))
            except StoreUnusable as error:
                damaged.append(Damage(backup_id, str(error)))
        return sorted(found, key=lambda manifest: manifest.number), damaged

    @contextlib.contextmanager
    def adding(self) -> Iterator[None]:
        """Write a backup within this context: whatever fails, the blocks that it has added are removed again.

        Leftovers of an earlier backup that was killed are removed first (drafts) or at the end (blocks). Raises
        `StoreUnavailable` when the disk is full or fails.
        """
        self._created.clear()
        marker = self.folder / _UNFINISHED
        with writing_errors(self.folder):
            _empty(self.folder / "drafts")
            interrupted = marker.exists()
            marker.touch(mode=0o600)
            try:
                yield
            except BaseException:  # also after Ctrl-C, half of a backup is removed
                if not interrupted:
                    for path in self._created:
                        path.unlink(missing_ok=True)
                    marker.unlink(missing_ok=True)
                raise
            if interrupted and not self.manifests()[1]:
                self.remove_unused_blocks()
            marker.unlink(missing_ok=True)

    def put(self, content: BinaryIO) -> tuple[int, str, tuple[str, ...], int]:
        """Store a content; return its size, SHA-256, block addresses, and the bytes that were not there before."""
        whole = hashlib.sha256()
        size = added = 0
        blocks: list[str] = []
        while block := content.read(BLOCK_BYTES):
            whole.update(block)
            size += len(block)
            address = self._sealing.address(block)
            blocks.append(address)
            added += self._put_block(address, block)
        return size, whole.hexdigest(), tuple(blocks), added

    def write(self, file: BackupFile, target: BinaryIO) -> None:
        """Write a file of a backup. Raises `StoreUnusable` if a block is missing or anything differs from its hash."""
        whole = hashlib.sha256()
        size = 0
        for address in file.blocks:
            block = self.block(address)
            whole.update(block)
            size += len(block)
            target.write(block)
        if size != file.bytes or whole.hexdigest() != file.sha256:
            raise StoreUnusable(f"{file.path} of the backup differs from its hash: its manifest or a block was changed")

    def block(self, address: str) -> bytes:
        """Return a block. Raises `StoreUnusable` if the block is missing, damaged, or does not match its address."""
        name = _block_name(address)
        content = self._sealing.unseal(name, _read(self.folder / name, 2 * BLOCK_BYTES), max_bytes=BLOCK_BYTES)
        if self._sealing.address(content) != address:
            raise StoreUnusable(f"{name} of the backup was changed or is damaged: its content differs from its hash")
        return content

    def add_manifest(self, manifest: Manifest) -> None:
        """Write the manifest, which completes a backup."""
        name = f"manifests/{manifest.id}.json"
        self._write(name, self._sealing.seal(name, encode_manifest(manifest)))
        sync_folder(self.folder / "manifests")

    def remove(self, backup_id: str) -> None:
        """Remove a backup; its blocks stay until `remove_unused_blocks`."""
        with writing_errors(self.folder):
            (self.folder / "manifests" / f"{backup_id}.json").unlink()
            sync_folder(self.folder / "manifests")

    def remove_unused_blocks(self) -> tuple[int, int]:
        """Remove the blocks that no manifest names; return how many blocks and bytes.

        Raises `StoreUnusable`, and removes none, if a manifest cannot be read: its blocks are not known.
        """
        manifests, damaged = self.manifests()
        if damaged:
            raise StoreUnusable(f"no block was removed, since it is not known which belong to {damaged[0].error}")
        used = {address for manifest in manifests for file in manifest.files for address in file.blocks}
        count = size = 0
        for path in (self.folder / "blocks").glob("*/*"):
            if path.name not in used:
                size += path.stat().st_size
                path.unlink()
                count += 1
        return count, size

    def stored_bytes(self) -> int:
        """Return what all blocks occupy."""
        return sum(path.stat().st_size for path in (self.folder / "blocks").glob("*/*"))

    def _put_block(self, address: str, block: bytes) -> int:
        name = _block_name(address)
        if (self.folder / name).exists():
            return 0
        sealed = self._sealing.seal(name, block)
        self._write(name, sealed)
        return len(sealed)

    def _write(self, name: str, content: bytes) -> None:
        target = self.folder / name
        target.parent.mkdir(mode=0o700, exist_ok=True)
        draft = self.folder / "drafts" / secrets.token_hex(8)
        write_synced(draft, content)
        self._created.append(target)
        draft.rename(target)


def create_repository(folder: Path, secret: bytes | None) -> None:
    """Make a repository in a new or empty folder, encrypted if a secret is given. Raises `Rejected`."""
    slot = new_key_slot(secret)[0] if secret is not None else None
    with writing_errors(folder):
        make_folders(folder)
        if any(path.name not in (_LOCK, "drafts", "lost+found") for path in folder.iterdir()):
            raise Rejected(f"{folder} is not empty, and contains no backups: name an empty or new folder", field="dest")
        for name in _FOLDERS:
            (folder / name).mkdir(mode=0o700, exist_ok=True)
        header = Header(id=secrets.token_hex(16), created_at=datetime.now(UTC), key=slot)
        draft = folder / "drafts" / secrets.token_hex(8)
        write_synced(draft, msgspec.json.format(msgspec.json.encode(header), indent=2))
        for name in _FOLDERS:
            sync_folder(folder / name)
        draft.rename(folder / _HEADER)
        sync_folder(folder)


def read_header(folder: Path) -> Header | None:
    """Return the header of the repository in a folder, None if there is none. Raises `StoreUnusable` if damaged."""
    try:
        content = (folder / _HEADER).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StoreUnavailable(f"{folder} cannot be read ({error.strerror})") from error
    try:
        header = msgspec.json.decode(content, type=Header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StoreUnusable(f"{folder / _HEADER} is damaged ({error})") from error
    if header.format > FORMAT:
        raise StoreUnusable(f"{folder} has format {header.format}, newer than {FORMAT}: upgrade Reverie")
    return header


def open_repository(folder: Path, secret: bytes | None) -> Repository:
    """Return the repository in a folder.

    Raises `NotFound` if there is none, and `Rejected` for a missing, wrong or unneeded passphrase: somebody could have
    put a repository that is not encrypted in the place of one that was.
    """
    header = read_header(folder)
    if header is None:
        raise NotFound(f"{folder} contains no backups of Reverie", field="dest")
    if header.key is None:
        if secret is not None:
            raise Rejected(f"the backups in {folder} are not encrypted, but a passphrase is given", field="passphrase")
        return Repository(folder, header, Sealing())
    if secret is None:
        raise Rejected(f"the backups in {folder} are encrypted: give the passphrase or key file", field="passphrase")
    return Repository(folder, header, open_key_slot(header.key, secret))


@contextlib.contextmanager
def locked(folder: Path, *, shared: bool = False) -> Iterator[None]:
    """Hold the lock of a repository's folder: shared to read from it, else alone. The kernel releases a dead process's.

    Raises `Conflict` while another process holds it in a way that excludes this one.
    """
    flags = os.O_RDONLY if shared else os.O_RDWR | os.O_CREAT
    try:
        descriptor = os.open(folder / _LOCK, flags, 0o600)
    except FileNotFoundError:  # never written to, or a copy of it
        yield
        return
    except OSError as error:
        raise StoreUnavailable(f"{folder} cannot be used ({error.strerror})") from error
    try:
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(
                f"another backup, restore or prune uses {folder}: try again when it has ended", field="dest"
            ) from None
        yield
    finally:
        os.close(descriptor)


def make_private(folder: Path, *, encrypted: bool) -> None:
    """Let only the owner enter an existing folder of backups.

    Raises `Rejected` where others may write to it, or read it although it is not encrypted, and that cannot be changed.
    """
    with contextlib.suppress(PermissionError):
        if folder.stat().st_mode & 0o077:
            folder.chmod(0o700)
    mode = folder.stat().st_mode
    if mode & 0o022 and not mode & stat.S_ISVTX:
        raise Rejected(f"other users may write to {folder}: name a folder that is yours alone", field="dest")
    if mode & 0o044 and not encrypted:
        raise Rejected(
            f"other users may read {folder}, and its permissions cannot be changed: name a folder that is yours alone,"
            " or use --encrypt",
            field="dest",
        )


@contextlib.contextmanager
def writing_errors(folder: Path) -> Iterator[None]:
    """Raise errors of the file system as `StoreUnavailable`, which name the folder and what to do."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        advice = "free some space, for instance by `reverie backup prune`" if full else "check its disk and permissions"
        raise StoreUnavailable(
            f"{error.filename or folder} cannot be written ({error.strerror or error}): {advice}"
        ) from error


def _block_name(address: str) -> str:
    if len(address) != 64 or not set(address) <= set("0123456789abcdef"):
        raise StoreUnusable(f"{address[:80]!r} is no address of a block: the manifest was changed")
    return f"blocks/{address[:2]}/{address}"


def _read(path: Path, max_bytes: int) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
    except FileNotFoundError:
        raise StoreUnusable(f"{path} of the backup is missing") from None
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be read ({error.strerror})") from error
    if len(content) > max_bytes:
        raise StoreUnusable(f"{path} of the backup is larger than it can be: it was changed or is damaged")
    return content


def _empty(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    for path in folder.iterdir():
        path.unlink()


def newest_at(manifests: Iterable[Manifest], at: datetime) -> Manifest:
    """Return the newest backup that was begun at or before a time. Raises `NotFound`."""
    found = [manifest for manifest in manifests if manifest.created_at <= at]
    if not found:
        raise NotFound(f"no backup was made at or before {at.isoformat()}: see `reverie backup list`", field="at")
    return max(found, key=lambda manifest: manifest.number)
