"""A model's directory as it was read: each file is opened once, and the same bytes are hashed, checked and loaded."""

from __future__ import annotations

import base64
import hashlib
import mmap
import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from xalign_models.assets.digests import combine, counts, directory_entries
from xalign_models.errors import AssetError, FileError, ModelError, one_line
from xalign_models.files import TensorHeader, parse_json, parse_safetensors, state_of, walk
from xalign_models.paths import CARD

if TYPE_CHECKING:
    from xalign_models.assets.resolution import ResolvedModel

IN_MEMORY = 64 << 20
"""Longer files, in bytes, are mapped instead of read."""
_MOST_FILES = 10_000
_MOST_SETTINGS = 64 << 20
_SETTINGS = re.compile(r".*config.*\.json|.*\.index\.json|(modules|special_tokens_map|chat_template)\.json")
_TIKTOKEN = bytes({*range(48, 58), *range(65, 91), *range(97, 123), *b"+/= \n"})
"""Bytes of a list of tokens in base64 with their ranks; none of them begins a normaliser of SentencePiece."""
_NORMALISERS = {3, 5}
"""Numbers of the protobuf fields of SentencePiece that rewrite text."""
_copies: dict[str, Inspected] = {}
"""Temporary copies that are in use, by path."""


class Inspected:
    """The files of a model's directory, each opened when it is first needed and only once.

    Args:
        directory: The directory.
        hub_id: The model's id on the hub, if the directory is the hub's cache and may have JSON files alone.

    Attributes:
        label: The directory or hub id, for messages.
        has_weights: Whether all files are there; of a model on the hub, only the configurations are.
        bases: The base of each adapter in the directory, by the name of the adapter's configuration.
        parts: The files of other models that were opened while this one was.
    """

    def __init__(self, directory: Path, hub_id: str = "") -> None:
        self.directory = directory
        self.label, self.has_weights = hub_id or str(directory), not hub_id
        self._contents: dict[str, bytearray | mmap.mmap] = {}
        self._parsed: dict[str, Any] = {}
        self._headers: dict[str, dict[str, TensorHeader]] = {}
        self._opened: list[tuple[str, list[int]]] = []
        self.bases: dict[str, ResolvedModel] = {}
        self.parts: list[Inspected] = []

    def has(self, name: str) -> bool:
        """Whether there is a file of this name, relative to the directory."""
        return (self.directory / name).is_file()

    def content(self, name: str) -> bytearray | mmap.mmap:
        """The bytes of a file.

        Raises:
            ModelError: The file is missing or unreadable.
        """
        name = PurePosixPath(name).as_posix()
        if name not in self._contents:
            path = self.directory / name
            try:
                if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would block, a device never ends
                    raise ModelError(f"{path} cannot be read: it is not a regular file.")
                with path.open("rb") as file:
                    self._opened.append((name, state_of(os.fstat(file.fileno()))))
                    if os.fstat(file.fileno()).st_size > IN_MEMORY:
                        self._contents[name] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
                    else:
                        self._contents[name] = bytearray(file.read(IN_MEMORY))
            except OSError as error:
                raise ModelError(f"{path} cannot be read: {error.strerror or error}.") from None
        return self._contents[name]

    def take(self, name: str) -> bytearray | mmap.mmap:
        """Like :meth:`content` for a single user, who may change the bytes; a later call opens the file again."""
        content = self.content(name)
        del self._contents[PurePosixPath(name).as_posix()]
        return content

    def json(self, name: str, kind: type | tuple[type, ...] = (dict, list), *, most: int = 16 << 20) -> Any:
        """The value of a JSON file of at most ``most`` bytes, parsed once; callers must not change it.

        Raises:
            ModelError: The file is missing, too long, damaged, or has another type.
        """
        where = f"{self.label}: {name}"
        with _as_model_error():
            if name not in self._parsed:
                content = self.content(name)
                if len(content) > most:
                    raise ModelError(f"{where} is longer than {most} bytes.")
                self._parsed[name] = parse_json(bytes(content), where, (dict, list))
            if not isinstance(self._parsed[name], kind):
                parse_json(bytes(self.content(name)), where, kind)  # raises
        return self._parsed[name]

    def settings(self, name: str) -> dict[str, Any]:
        """The object in a JSON file; empty if there is no such file.

        Raises:
            ModelError: The file is damaged.
        """
        return dict(self.json(name, dict)) if self.has(name) else {}

    def header(self, name: str) -> dict[str, TensorHeader]:
        """Names, types and shapes of a safetensors file.

        Raises:
            ModelError: The file is missing or damaged.
        """
        if name not in self._headers:
            with _as_model_error():
                self._headers[name] = parse_safetensors(self.content(name), str(self.directory / name))
        return self._headers[name]

    @cached_property
    def parsed(self) -> dict[str, Any]:
        """The values of the JSON files that libraries read settings from, by name; callers must not change them.

        Raises:
            ModelError: A file is damaged, is no object (``modules.json``: no list), or they are too long in all.
        """
        parsed, left = {}, _MOST_SETTINGS
        for name in sorted(self.names):
            if _SETTINGS.fullmatch(file := PurePosixPath(name).name):
                parsed[name] = self.json(name, list if file == "modules.json" else dict)
                left -= len(self.content(name))
                if left < 0:
                    raise ModelError(f"{self.label}: its settings are longer than {_MOST_SETTINGS} bytes in all.")
        return parsed

    @cached_property
    def headers(self) -> dict[str, dict[str, TensorHeader]]:
        """The header of each safetensors file, by name; empty for a model on the hub.

        Raises:
            ModelError: A file is damaged.
        """
        names = sorted(name for name in self.names if name.lower().endswith(".safetensors"))
        return {name: self.header(name) for name in names if self.has_weights}

    @cached_property
    def tokenizers(self) -> dict[str, list[Any]]:
        """Every part of each ``tokenizer.json`` or SentencePiece file, by name, without its vocabulary.

        Raises:
            ModelError: A file is damaged.
        """
        places = [PurePosixPath(name) for name in sorted(self.names)]
        found = {str(place): self._tokenizer(str(place)) for place in places if place.name == "tokenizer.json"}
        found |= {str(place): self._sentencepiece(str(place)) for place in places if place.suffix == ".model"}
        return {name: list(walk(content)) for name, content in found.items()}

    def _tokenizer(self, name: str) -> dict[str, Any]:
        """A tokenizer's content without its vocabulary, which is long."""
        parsed = self.json(name, dict, most=IN_MEMORY)
        del self._parsed[name]
        model = parsed["model"] if isinstance(parsed.get("model"), dict) else {}
        short = {key: value for key, value in model.items() if key not in {"vocab", "merges"}}
        return {key: value for key, value in parsed.items() if key != "added_tokens"} | {"model": short}

    def _sentencepiece(self, name: str) -> dict[str, Any]:
        """The charts of a SentencePiece file in the form of a ``tokenizer.json``; tiktoken's lists have none."""
        from xalign_models.assets.use import protobuf_fields

        content = bytes(self.content(name)[: IN_MEMORY + 1])
        if len(content) > IN_MEMORY:
            raise ModelError(f"{self.label}: {name} is longer than {IN_MEMORY} bytes.")
        if not content.translate(None, _TIKTOKEN):
            return {}
        try:
            parts = [part for part in protobuf_fields(content) if part[0] in _NORMALISERS]
            charts = [
                content[a:b] for _, *part in parts for number, a, b in protobuf_fields(content, *part) if number == 2
            ]
        except AssetError as error:
            raise ModelError(f"{self.label}: {name} is damaged. {error}") from None
        chart = base64.b64encode
        return {"charts": [{"type": "Precompiled", "precompiled_charsmap": chart(part).decode()} for part in charts]}

    def fingerprint(self, without: str = "", folder: str = "") -> str:
        """The fingerprint of the directory, or of a folder in it, or without a folder in it.

        See :func:`~xalign_models.assets.digests.directory_fingerprint`. The files are hashed at the first call, and
        :meth:`confirm` compares them with these hashes.

        Raises:
            ModelError: A file is unreadable.
        """
        above, left_out = (f"{place}/" if place else "" for place in (folder, without))
        names = [name for name in self._entries if name.startswith(above)]
        names = [name for name in names if not (left_out and name.startswith(left_out))]
        return combine({name.removeprefix(above): self._entries[name][-1] for name in names})

    @property
    def adapters(self) -> list[str]:
        """The configurations of adapters, without those of xalign, which contain their base's fingerprint.

        Raises:
            ModelError: A file is unreadable.
        """
        names = [name for name in self._entries if PurePosixPath(name).name == "adapter_config.json"]
        beside = {name: PurePosixPath(name).with_name("sentence_bert_config.json").as_posix() for name in names}
        return [name for name in names if not self.settings(beside[name]).get("base")]

    @cached_property
    def _entries(self) -> dict[str, list[Any]]:
        root = self.directory.resolve()

        def hash_file(path: Path) -> str:
            return hashlib.sha256(self.content(path.relative_to(root).as_posix())).hexdigest()

        try:
            return directory_entries(self.directory, hash_file)
        except OSError as error:
            raise ModelError(f"{self.label} cannot be read: {one_line(error)}.") from None

    def confirm(self) -> None:
        """Refuse files that are not, or no longer, those of the fingerprint; nothing if there is no fingerprint yet.

        The states of all files are those from before the weights were opened, and each file that was opened had the
        state in which it was hashed. So whatever library opened a file read the bytes that were hashed.

        Raises:
            ModelError: A file has changed, or was opened and does not count; the message names it.
        """
        for files in (*self.parts, *(base.opened for base in self.bases.values() if base.opened)):
            files.confirm()
        if "_entries" not in vars(self):
            return
        with suppress(OSError):
            now = directory_entries(self.directory)
            changed = {name for name in now.keys() | self._entries.keys() if now.get(name) != self._entries.get(name)}
            read = {name for name, state in self._opened if self._entries.get(name, [])[:-1] != state}
            if not (changed := changed | {name for name in read if PurePosixPath(name).name != CARD}):
                return
            raise ModelError(
                f"{self.label} changed while it was in use ({min(changed)}); its vectors are not stored. Run the "
                "command again."
            )
        raise ModelError(f"{self.label} was removed while it was in use; its vectors are not stored.")

    @cached_property
    def names(self) -> frozenset[str]:
        """Every file, relative to the directory.

        Links must stay within the directory, or within the hub's cache that it is in.

        Raises:
            ModelError: A link leads out of the directory, something is not a regular file, or there are too many files.
        """
        root = self.directory.resolve()
        roots = [root, *([root.parents[1] / "blobs"] if root.parent.name == "snapshots" else [])]
        names: list[str] = []
        for folder, folders, files in os.walk(root):
            for name in (*folders, *files):
                path = Path(folder, name)
                if path.is_symlink() and not any(Path(os.path.realpath(path)).is_relative_to(root) for root in roots):
                    raise ModelError(
                        f"{self.label} has a link that leads out of it ({path.relative_to(root)}); copy the file."
                    )
            for name in files:
                if not Path(folder, name).is_file():
                    raise ModelError(f"{self.label} has {name}, which is not a regular file; remove it.")
                names.append(Path(folder, name).relative_to(root).as_posix())
                if len(names) > _MOST_FILES:
                    raise ModelError(
                        f"{self.label} has more than {_MOST_FILES:,} files; give the model's own directory."
                    )
        return frozenset(names)

    @contextmanager
    def copied(self, skip: Callable[[str], bool]) -> Iterator[Path]:
        """A temporary directory with the files as they were read, for libraries that open files themselves."""
        for files in _copies.values():  # those of a model of which this one is a part
            if files is not self and files not in self.parts:
                files.parts.append(self)
        with tempfile.TemporaryDirectory(prefix="xalign-") as temporary:
            for name in self.names:
                source, target = self.directory.resolve() / name, Path(temporary, name)
                if skip(name) or not counts(name):
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                if source.stat().st_size > IN_MEMORY:
                    target.symlink_to(source)
                else:
                    target.write_bytes(self.content(name))
            _copies[temporary] = self
            try:
                yield Path(temporary)
            finally:
                del _copies[temporary]
                self._contents.clear()  # the model has been loaded


def inspected(path: str | Path | Inspected) -> Inspected:
    """The files of a directory; of a temporary copy, those that it was made from."""
    return path if isinstance(path, Inspected) else _copies.get(str(path)) or Inspected(Path(path))


@contextmanager
def _as_model_error() -> Iterator[None]:
    try:
        yield
    except FileError as error:
        raise ModelError(str(error)) from None
