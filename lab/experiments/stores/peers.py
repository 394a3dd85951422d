"""Other clients of S3, each as its documentation says: a checkpoint to a store and back.

Clients of files put a file of DeepFreeze's as it is, and get it back into memory, where nobody
looks at it. Those of `dcp` save a state and load it into a live one, as DeepFreeze does. Parts and
ranges have 16 MiB, four at a time, if that can be set.
"""

from __future__ import annotations

import importlib
import mmap
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .state import State

PART = 16 << 20
AT_A_TIME = 4
REGION = "us-east-1"
KEY = "checkpoint"


def endpoint() -> str:
    return os.environ["AWS_ENDPOINT_URL_S3"]


def keys() -> tuple[str, str]:
    return os.environ["AWS_ACCESS_KEY_ID"], os.environ["AWS_SECRET_ACCESS_KEY"]


def ranges(size: int) -> list[tuple[int, int]]:
    """Offset and bytes of each."""
    return [(at, min(PART, size - at)) for at in range(0, size, PART)]


class Peer:
    """One place in a bucket: `prefix` ends with no slash. `near` is a run of DeepFreeze."""

    packages: tuple[str, ...] = ()
    one_tensor = False  # whether it can read one out of a checkpoint

    def __init__(self, bucket: str, prefix: str, near: Path) -> None:
        self.bucket, self.prefix, self.near = bucket, prefix, near

    @property
    def key(self) -> str:
        return f"{self.prefix}/{KEY}"

    def connect(self) -> None:
        """All that a process does once: imports, clients, one small object put and read."""

    def upload(self, file: Path, state: State) -> None:
        raise NotImplementedError

    def download(self, state: State, size: int) -> int:
        """Bytes that arrived."""
        raise NotImplementedError

    def load_one(self, state: State, name: str) -> None:
        raise NotImplementedError


class Boto3(Peer):
    packages = ("boto3", "botocore", "s3transfer")

    def connect(self) -> None:
        boto3 = importlib.import_module("boto3")
        config = importlib.import_module("botocore.config").Config(s3={"addressing_style": "path"})
        self.client = boto3.client("s3", endpoint_url=endpoint(), region_name=REGION, config=config)
        self.transfer = importlib.import_module("boto3.s3.transfer").TransferConfig(
            multipart_chunksize=PART, max_concurrency=AT_A_TIME, multipart_threshold=PART
        )
        self.client.put_object(Bucket=self.bucket, Key=f"{self.prefix}/small", Body=b"small")
        self.client.get_object(Bucket=self.bucket, Key=f"{self.prefix}/small")["Body"].read()

    def upload(self, file: Path, state: State) -> None:
        self.client.upload_file(str(file), self.bucket, self.key, Config=self.transfer)

    def download(self, state: State, size: int) -> int:
        """Into a file that is memory: `download_fileobj` into an object has one writer more."""
        place = Path(f"/dev/shm/boto3-{os.getpid()}")
        try:
            self.client.download_file(self.bucket, self.key, str(place), Config=self.transfer)
            return place.stat().st_size
        finally:
            place.unlink(missing_ok=True)


class Obstore(Peer):
    packages = ("obstore",)

    def connect(self) -> None:
        self.api = importlib.import_module("obstore")
        access, secret = keys()
        self.store = importlib.import_module("obstore.store").S3Store(
            self.bucket, endpoint=endpoint(), region=REGION, access_key_id=access,
            secret_access_key=secret, virtual_hosted_style_request=False,
            client_options={"allow_http": True},
        )  # fmt: skip
        self.api.put(self.store, f"{self.prefix}/small", b"small")
        self.api.get(self.store, f"{self.prefix}/small").bytes()

    def upload(self, file: Path, state: State) -> None:
        self.api.put(self.store, self.key, file, chunk_size=PART, max_concurrency=AT_A_TIME)

    def download(self, state: State, size: int) -> int:
        starts, lengths = zip(*ranges(size), strict=True)
        found = self.api.get_ranges(
            self.store, self.key, starts=starts, lengths=lengths, coalesce=0
        )
        return sum(len(one) for one in found)


class PyArrow(Peer):
    packages = ("pyarrow",)

    def connect(self) -> None:
        fs = importlib.import_module("pyarrow.fs")
        access, secret = keys()
        self.files = fs.S3FileSystem(
            access_key=access, secret_key=secret, region=REGION, scheme="http",
            endpoint_override=endpoint().partition("//")[2], background_writes=True,
        )  # fmt: skip
        with self.files.open_output_stream(f"{self.bucket}/{self.prefix}/small") as stream:
            stream.write(b"small")
        self.files.open_input_file(f"{self.bucket}/{self.prefix}/small").read()

    def upload(self, file: Path, state: State) -> None:
        with (
            file.open("rb") as source,
            mmap.mmap(source.fileno(), 0, prot=mmap.PROT_READ) as pages,
            memoryview(pages) as view,
            self.files.open_output_stream(f"{self.bucket}/{self.key}") as stream,
        ):
            for at, size in ranges(len(view)):
                with view[at : at + size] as part:
                    stream.write(part)

    def download(self, state: State, size: int) -> int:
        with (
            self.files.open_input_file(f"{self.bucket}/{self.key}") as source,
            ThreadPoolExecutor(AT_A_TIME) as threads,
        ):
            found = list(threads.map(lambda one: source.read_at(one[1], one[0]), ranges(size)))
        return sum(map(len, found))


class S3Fs(Peer):
    packages = ("s3fs", "fsspec", "aiobotocore")

    def connect(self) -> None:
        access, secret = keys()
        place = {"endpoint_url": endpoint(), "region_name": REGION}
        options = {"key": access, "secret": secret, "client_kwargs": place}
        importlib.import_module("fsspec").config.conf["s3"] = options  # of every user of fsspec
        self.files = importlib.import_module("s3fs").S3FileSystem(**options)
        self.files.pipe_file(f"{self.bucket}/{self.prefix}/small", b"small")
        self.files.cat_file(f"{self.bucket}/{self.prefix}/small")

    def upload(self, file: Path, state: State) -> None:
        self.files.put_file(
            str(file), f"{self.bucket}/{self.key}", chunksize=PART, max_concurrency=AT_A_TIME
        )

    def download(self, state: State, size: int) -> int:
        found = self.files.cat_file(
            f"{self.bucket}/{self.key}", start=0, end=size, chunksize=PART,
            max_concurrency=AT_A_TIME,
        )  # fmt: skip
        return len(found)


class Dcp(Peer):
    """A state by torch.distributed.checkpoint: not a file, but live tensors."""

    one_tensor = True

    def writer(self) -> Any:
        raise NotImplementedError

    def reader(self) -> Any:
        raise NotImplementedError

    @property
    def url(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    def connect(self) -> None:
        self.dcp = importlib.import_module("torch.distributed.checkpoint")

    def upload(self, file: Path, state: State) -> None:
        self.dcp.save(dict(state), storage_writer=self.writer(), no_dist=True)

    def download(self, state: State, size: int) -> int:
        self.dcp.load(state, storage_reader=self.reader(), no_dist=True)
        return sum(tensor.nbytes for tensor in state.values())

    def load_one(self, state: State, name: str) -> None:
        self.dcp.load({name: state[name]}, storage_reader=self.reader(), no_dist=True)


class DcpFsspec(Dcp):
    packages = ("torch", "s3fs", "fsspec")

    def connect(self) -> None:
        super().connect()
        S3Fs(self.bucket, self.prefix, self.near).connect()
        self.module = importlib.import_module("torch.distributed.checkpoint._fsspec_filesystem")

    def writer(self) -> Any:
        return self.module.FsspecWriter(self.url, sync_files=False)

    def reader(self) -> Any:
        return self.module.FsspecReader(self.url)


class DcpConnector(Dcp):
    """The connector of AWS, over its common runtime in C."""

    packages = ("torch", "s3torchconnector", "s3torchconnectorclient")

    def connect(self) -> None:
        super().connect()
        connector = importlib.import_module("s3torchconnector")
        self.module = importlib.import_module("s3torchconnector.dcp.s3_file_system")
        client = importlib.import_module("s3torchconnector._s3client").S3Client
        config = connector.S3ClientConfig(
            force_path_style=True, part_size=PART, throughput_target_gbps=100.0
        )
        self.client = client(region=REGION, endpoint=endpoint(), s3client_config=config)
        with self.client.put_object(self.bucket, f"{self.prefix}/small") as stream:
            stream.write(b"small")

    def with_client(self, storage: Any) -> Any:
        """Its reader and writer take no endpoint."""
        storage.fs._client = self.client
        return storage

    def writer(self) -> Any:
        return self.with_client(self.module.S3StorageWriter(REGION, f"{self.url}/"))

    def reader(self) -> Any:
        return self.with_client(self.module.S3StorageReader(REGION, f"{self.url}/"))
