"""A bucket as the store of a staging area, through Arrow's S3 client: for executors that have no folder in common.

Each host finds its access keys as Amazon's tools do; mailmend is given none. An object is complete or does not exist.
Unlike with a folder, two runs at once are not excluded: they read and write the same segments, which is harmless.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, Final
from urllib.parse import urlsplit

from pyarrow import fs

from mailmend.model.errors import StateUnwritable

_CONNECT_SECONDS: Final = 5.0
_REQUEST_SECONDS: Final = 20.0
_CODE: Final = re.compile(r"AWS Error (\w+)")


@dataclass(frozen=True, slots=True)
class StagingBucket:
    """A prefix in a bucket. Implements `repair.staging.area.StagingStore`.

    Attributes:
        prefix: the prefix of all keys, without a slash at either end.
        endpoint: the URL of the store, such as `https://s3.example.org:9000`.
    """

    bucket: str
    prefix: str
    endpoint: str
    region: str

    @property
    def place(self) -> str:
        return f"s3a://{self.bucket}/{self.prefix}"

    def held(self) -> AbstractContextManager[None]:
        return nullcontext()

    def names(self) -> Mapping[str, int]:
        with self._named():
            found = self._files().get_file_info(fs.FileSelector(self._path(), allow_not_found=True))
            return {file.base_name: file.size for file in found if file.type is fs.FileType.File}

    def read(self, name: str) -> bytes | None:
        """The content of a file; None where there is no such file."""
        try:
            with self._named(), self._files().open_input_file(self._path(name)) as file:
                content: bytes = file.read()
                return content
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        with self._named(), self._files().open_output_stream(self._path(name)) as file:
            file.write(content)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            with self._named(), suppress(FileNotFoundError):
                self._files().delete_file(self._path(name))

    def free_bytes(self) -> int | None:
        return None

    def _path(self, name: str = "") -> str:
        return "/".join(filter(None, (self.bucket, self.prefix, name)))

    def _files(self) -> Any:
        return _opened(self.endpoint, self.region)

    @contextmanager
    def _named(self) -> Iterator[None]:
        """What the store answers is not shown: it may hold what was signed."""
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            answer = "no answer"
            if code := _CODE.search(str(error)):
                answer = code[1]
            raise StateUnwritable(
                f"the staging area {self.place} at {self.endpoint} cannot be used: {answer}",
                mend="Staged data is kept. See that the bucket is there, and which keys are "
                "found: `aws sts get-caller-identity`; they have to get, put, list and "
                "delete. Then the same command goes on.",
            ) from None


@cache
def _opened(endpoint: str, region: str) -> Any:
    parts = urlsplit(endpoint)
    # By itself Amazon's library adds a checksum in a form that other stores may not know; Parquet has its own.
    os.environ.setdefault("AWS_REQUEST_CHECKSUM_CALCULATION", "when_required")
    return fs.S3FileSystem(
        region=region,
        scheme=parts.scheme,
        endpoint_override=parts.netloc,
        connect_timeout=_CONNECT_SECONDS,
        request_timeout=_REQUEST_SECONDS,
        background_writes=False,
        allow_delayed_open=True,  # one request for a small file
    )
