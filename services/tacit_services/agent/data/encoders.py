"""Public encoders, run on an owner's rows: files known by their SHA-256, models in a process of their own.

A model is a public file that somebody else wrote, and an image one that anybody may have made. Both are read
in a child process (``python -m tacit_services.agent.data.encoders FD``) that holds no key, budget or setting,
opens no file of data, writes none, and says nothing but one vector for each row. It is given one row at a
time, by one thread, and so has no way to let a row change what comes of another. A row on which it fails,
takes too long, takes too much memory or dies is missing, as an image that cannot be read is: no error, count
or line of a log tells.
"""

import hashlib
import io
import math
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tacit_protocol.arrow_columns import UNDECODED, text, vectors
from tacit_protocol.domain import (
    TEXT_MAX,
    DataError,
    Encoder,
    ImageColumn,
    InputColumn,
    TextColumn,
    VectorColumn,
    WorkersUnavailableError,
)
from tacit_services.agent.data.regular_files import opened
from tacit_services.agent.data.source import Columns, installed

Floats = npt.NDArray[np.float64]

MODEL_BYTES_MAX = 2**29
"""Largest file of a model or a matrix."""

IMAGE_BYTES_MAX = 2**25
"""Largest file of an image; a larger one cannot be read."""

PIXELS_MAX = 2**25
"""Most pixels of an image, before it is resized: one of more, however small its file, cannot be read."""

FORMATS = ("JPEG", "PNG", "WEBP", "BMP")

ROW_S = 10.0
"""Most of a processor's time that one row takes, whatever else the machine does."""

WAIT_S = 60.0
"""Longest that a row is waited for where the machine gives it no time, or a model to load."""

MEMORY_BYTES = 2**32
"""Address space of the process that runs a model."""

PROGRAMS = ("onnx", "onnxruntime", "PIL")
"""What a model needs: the extra ``encoders``."""

KEPT = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG")
"""What the process is told of its parent's environment, in which passwords may stand."""


class ModelRefusedError(Exception):
    """A file is no model that runs here. The message is one of a few constant texts."""


@dataclass(frozen=True)
class EncoderFolders:
    """Where an agent's public files are, each called by its SHA-256; below which folder images may lie."""

    files: Path | None = None
    images: Path | None = None

    def lacks(self, encoders: Iterable[Encoder]) -> str | None:
        """Say what keeps encoders from running here, whatever the data; None where nothing does."""
        for encoder in encoders:
            if encoder.model is not None and sys.platform == "win32":
                return "models run on Linux and macOS alone"
            if encoder.model is not None and any(find_spec(name) is None for name in PROGRAMS):
                return installed("What runs models", "encoders")
            if self.images is None and any(isinstance(one, ImageColumn) for one in encoder.inputs):
                return "the data set has no image_folder"
            try:
                for digest, _ in encoder.files:
                    self.content(digest)
            except DataError as error:
                return str(error)
        return None

    def content(self, digest: str) -> bytes:
        """Return the public file of that SHA-256, whose bytes are those that are used.

        Raises:
            DataError: there is none here, it is too large, or its bytes are others.
        """
        try:
            if self.files is None:
                raise FileNotFoundError
            with opened(self.files / digest) as file, file.stream() as stream:
                content = stream.read(MODEL_BYTES_MAX + 1)
        except (OSError, DataError):
            raise DataError(
                f"the encoder {digest} is not in encoders_folder: copy its file there, called by that SHA-256"
            ) from None
        if len(content) > MODEL_BYTES_MAX or hashlib.sha256(content).hexdigest() != digest:
            raise DataError(f"the file of the encoder {digest} holds something else than its name says")
        return content

    def image(self, path: str) -> bytes | None:
        """Return the bytes of a file below the folder of images; None where it is none, or lies elsewhere."""
        folder = os.path.abspath(str(self.images))
        try:
            found = os.path.abspath(os.path.join(folder, path))
            if self.images is None or os.path.commonpath((folder, found)) != folder:
                return None
            with opened(Path(found)) as file, file.stream() as stream:
                return stream.read(IMAGE_BYTES_MAX) if file.state.size_bytes <= IMAGE_BYTES_MAX else None
        except (OSError, ValueError, DataError):
            return None


@dataclass(frozen=True)
class RowEncoders:
    """A study's encoders as one owner runs them."""

    encoders: tuple[Encoder, ...]
    folders: EncoderFolders = EncoderFolders()

    @property
    def made(self) -> frozenset[str]:
        """Names of the columns that they make."""
        return frozenset(name for encoder in self.encoders for name in encoder.outputs)

    def columns(self, numbers: Sequence[str], texts: Sequence[str], unit: str | None) -> Columns:
        """Return what is read of a data set: these columns, and those that the encoders read."""
        read = [column for encoder in self.encoders for column in encoder.inputs]
        own = (*numbers, *texts)
        others = dict.fromkeys(c.name for c in read if not isinstance(c, VectorColumn) and c.name not in own)
        lists = dict.fromkeys(c.name for c in read if isinstance(c, VectorColumn))
        if set(lists) & {*own, *others}:
            raise DataError("a column is read as a vector and as something else")
        return Columns(tuple(numbers), (*texts, *others), unit, tuple(lists))

    @property
    def row_bytes(self) -> int:
        """How much of a row is held while its columns are made."""
        lengths = [one.length for encoder in self.encoders for one in encoder.inputs if one.kind == "vector"]
        return 8 * sum(lengths) + 16 * sum(encoder.vector.length for encoder in self.encoders)

    @contextmanager
    def running(self) -> Iterator["EncodingRun"]:
        """Read the public files and start what runs the models.

        Raises:
            DataError: a file is missing, or is not what the study says. No row has been looked at.
        """
        with ExitStack() as stack:
            parts = []
            for encoder in self.encoders:
                model = None
                if encoder.model is not None:
                    content = self.folders.content(encoder.model.sha256)
                    model = stack.enter_context(ModelProcess(content, encoder))
                parts.append((encoder, model, self._matrix(encoder)))
            yield EncodingRun(tuple(parts), self.folders)

    def _matrix(self, encoder: Encoder) -> Floats | None:
        if encoder.projection is None or encoder.projection.sha256 is None:
            return encoder.matrix()
        content = self.folders.content(encoder.projection.sha256)
        try:
            return encoder.matrix(np.lib.format.read_array(io.BytesIO(content), allow_pickle=False))
        except (ValueError, OSError, TypeError, MemoryError):
            raise DataError(
                f"the encoder {encoder.projection.sha256} is no projection of the study's shape"
            ) from None


@dataclass(frozen=True)
class EncodingRun:
    """Encoders that run."""

    parts: "tuple[tuple[Encoder, ModelProcess | None, Floats | None], ...]"
    folders: EncoderFolders

    def made_of(self, batch: pa.RecordBatch) -> dict[str, Floats]:
        """Return the columns that the encoders make of a batch's rows, each (rows,), NaN where missing."""
        made: dict[str, Floats] = {}
        for encoder, model, matrix in self.parts:
            if model is None:
                (column,) = encoder.inputs
                found = vectors(column.name, batch.column(column.name), encoder.vector.length)
            else:
                found = np.full((batch.num_rows, encoder.vector.length), math.nan)
                rows = zip(*(self._parts_of(column, batch) for column in encoder.inputs), strict=True)
                for row, parts in enumerate(rows):
                    known = [part for part in parts if part is not None]
                    if len(known) == len(parts):
                        found[row] = model.vector_of(known)
            made |= encoder.made_of(found, matrix)
        return made

    def _parts_of(self, column: InputColumn, batch: pa.RecordBatch) -> Iterator[bytes | None]:
        """Yield what the model's process is sent of each row's value; None where it is missing."""
        if isinstance(column, VectorColumn):
            for vector in vectors(column.name, batch.column(column.name), column.length):
                yield vector.tobytes() if math.isfinite(vector[0]) else None
            return
        values = text(batch.column(column.name))
        for place in values.indices.tolist():
            value = values.distinct[place] if place >= 0 else None
            if value is None or isinstance(column, TextColumn):
                yield None if value is None else value[:TEXT_MAX].encode(errors="replace")
            else:
                yield self.folders.image(os.fsdecode(value.encode(errors=UNDECODED)))


class ModelProcess:
    """A process that makes a vector of each row it is given, one by one; started again when it dies."""

    def __init__(self, content: bytes, encoder: Encoder):
        self._content, self._header = content, encoder.model_dump_json().encode()
        self._length = encoder.vector.length
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[bytes, bytes] | None = None

    def __enter__(self) -> "ModelProcess":
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def vector_of(self, parts: Sequence[bytes]) -> Floats | float:
        """Return the vector of a row, (length,), by what the inputs are given; NaN where there is none.

        Raises:
            WorkersUnavailableError: the process, which some row ended, does not begin again now. That is no
                fault of the study, which would tell of that row: it waits.
        """
        if self._connection is None:
            try:
                self._start()
            except (DataError, OSError):
                raise WorkersUnavailableError("no process begins now that runs a model") from None
        found = self._asked(parts)
        if found is None:
            self._end()
            return math.nan
        if len(found) != 8 * self._length:
            return math.nan
        return np.frombuffer(found, dtype=np.float64)

    def _start(self) -> None:
        ours, theirs = Pipe()
        try:
            self._process = subprocess.Popen(  # noqa: S603 (our own module)
                [sys.executable, "-P", "-m", __name__, str(theirs.fileno()), str(ROW_S)],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={name: os.environ[name] for name in KEPT if name in os.environ},
                start_new_session=True,
            )
        finally:
            theirs.close()
        self._connection = ours
        said = self._asked((self._header, self._content))
        if said != STARTED:
            self._end()
            words = REFUSALS.get(said or b"", "the model's process ended before it began")
            raise DataError(f"a model of the study does not run here: {words}")

    def _asked(self, parts: Sequence[bytes]) -> bytes | None:
        """Send some parts, and return the answer; None where the process died, or was ended for its time."""
        process, connection = self._process, self._connection
        if process is None or connection is None:
            return None
        timer = Timer(WAIT_S, process.kill)
        timer.daemon = True
        timer.start()
        try:
            for part in parts:
                connection.send_bytes(part)
            return connection.recv_bytes(max(1024, 8 * self._length))
        except (OSError, EOFError):
            return None
        finally:
            timer.cancel()

    def _end(self) -> None:
        if self._connection is not None:
            self._connection.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._process = self._connection = None


STARTED = b"started"

RANDOM = {
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}
"""Operators with a state that one row would hand on to the next."""

CONTRIBUTED = {"Tokenizer"}
"""Operators of onnxruntime's own that may be used beside those of the standard."""

REFUSALS = {
    b"installed": f"it needs {', '.join(PROGRAMS)}: pip install 'tacit[encoders]'",
    b"no-model": "the file is no ONNX model that onnxruntime loads",
    b"external": "the model keeps weights in other files",
    b"operators": "the model has operators that are not of the ONNX standard, or functions of its own",
    b"random": "the model draws random numbers, by which one row could change another's result",
    b"inputs": "the model has other inputs than the study says",
}
"""Why a model is refused, by what its process answers."""


def serve(connection: "Connection[bytes, bytes]", row_s: float) -> None:
    """Answer as the model's process until the other side goes; a row that takes longer ends the process."""
    encoder = Encoder.model_validate_json(connection.recv_bytes(2**24))
    content = connection.recv_bytes(MODEL_BYTES_MAX)
    try:
        model = LoadedModel(content, encoder.inputs)
    except ModelRefusedError as error:
        connection.send_bytes(str(error).encode())
        return
    connection.send_bytes(STARTED)
    while True:
        parts = [connection.recv_bytes() for _ in encoder.inputs]
        signal.setitimer(signal.ITIMER_PROF, row_s)  # the processor's time: no crowd makes a row missing
        try:
            answer = model.output_of(parts)
        # Whatever a row does to it: that row is missing.
        except Exception:
            answer = b""
        signal.setitimer(signal.ITIMER_PROF, 0)
        connection.send_bytes(answer if len(answer) == 8 * encoder.vector.length else b"")


class LoadedModel:
    """An ONNX model in this process.

    Args:
        content: the file.
        inputs: what its inputs are given, in their order.

    Raises:
        ModelRefusedError: it is none that may run; the text is a key of ``REFUSALS``.
    """

    def __init__(self, content: bytes, inputs: Sequence[InputColumn]):
        try:
            import onnx  # noqa: PLC0415 (an extra)
            import onnxruntime  # noqa: PLC0415
            from PIL import Image  # noqa: PLC0415
        except ImportError:
            raise ModelRefusedError("installed") from None
        try:
            parsed = onnx.load_model_from_string(content)
        except Exception:
            raise ModelRefusedError("no-model") from None
        _require_plain(parsed)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        options.use_deterministic_compute = True
        options.enable_cpu_mem_arena = options.enable_mem_pattern = False
        options.log_severity_level = 4
        try:
            self._session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        except Exception:
            raise ModelRefusedError("no-model") from None
        self._open_image: Any = Image
        self._columns = tuple(inputs)
        self._inputs = self._session.get_inputs()
        self._output = self._session.get_outputs()[0].name
        kinds = [_TYPES.get(one.type) for one in self._inputs]
        wanted = [column.kind == "text" for column in inputs]
        if [kind is str for kind in kinds] != wanted or None in kinds:
            raise ModelRefusedError("inputs")

    def output_of(self, parts: Sequence[bytes]) -> bytes:
        """Return the first output for one row as float64; raises anything where there is none."""
        feeds = {
            one.name: self._tensor(column, part, one.shape, _TYPES[one.type])
            for column, part, one in zip(self._columns, parts, self._inputs, strict=True)
        }
        (found,) = self._session.run([self._output], feeds)
        return np.asarray(found).astype(np.float64).tobytes()

    def _tensor(self, column: InputColumn, part: bytes, shape: Sequence[Any], kind: type) -> npt.NDArray[Any]:
        sides = [side if isinstance(side, int) and side > 0 else 1 for side in shape]
        if isinstance(column, TextColumn):
            return np.array([part.decode()], dtype=object).reshape([1] * len(sides))
        if isinstance(column, ImageColumn):
            return np.ascontiguousarray(self._pixels(column, part), dtype=kind)[None]
        vector: npt.NDArray[Any] = np.frombuffer(part, dtype=np.float64).astype(kind)
        return vector.reshape(sides if math.prod(sides) == column.length else (1, column.length))

    def _pixels(self, column: ImageColumn, content: bytes) -> Floats:
        with self._open_image.open(io.BytesIO(content), formats=FORMATS) as image:
            if image.width * image.height > PIXELS_MAX:
                raise ValueError("too large")
            plain = image.convert("L" if column.channels == "grey" else "RGB")
        resized = plain.resize((column.width, column.height), self._open_image.Resampling.BILINEAR)
        pixels = np.asarray(resized, dtype=np.float64).reshape(column.height, column.width, -1)
        if column.channels == "bgr":
            pixels = pixels[:, :, ::-1]
        scaled: Floats = (pixels / 255 - np.array(column.mean)) / np.array(column.deviation)
        return scaled if column.layout == "channels-last" else scaled.transpose(2, 0, 1)


_TYPES: Mapping[str, type] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(string)": str,
}
"""Types of a model's inputs that a column can be given as."""


def _require_plain(model: Any) -> None:
    """Raise ModelRefusedError for operators beyond the standard, random ones, and weights in other files."""
    import onnx  # noqa: PLC0415 (an extra)

    if model.functions or model.training_info:
        raise ModelRefusedError("operators")
    for part in _messages(model):
        if isinstance(part, onnx.TensorProto) and (
            part.data_location == onnx.TensorProto.EXTERNAL or part.external_data
        ):
            raise ModelRefusedError("external")
        if isinstance(part, onnx.NodeProto):
            known = part.domain in ("", "ai.onnx", "ai.onnx.ml") or (
                part.domain == "com.microsoft" and part.op_type in CONTRIBUTED
            )
            if not known:
                raise ModelRefusedError("operators")
            # The third input of Dropout turns it on.
            if part.op_type in RANDOM or (part.op_type == "Dropout" and len(part.input) > 2):
                raise ModelRefusedError("random")


def _messages(message: Any) -> Iterator[Any]:
    """Yield a protobuf message and all that lie within it, graphs of branches and loops too."""
    waiting = [message]
    while waiting:
        found = waiting.pop()
        yield found
        for field, value in found.ListFields():
            if field.message_type is not None:
                waiting.extend([value] if hasattr(value, "ListFields") else value)


def confine() -> None:
    """Take from this process what it has no use for: memory beyond a bound, files to write, a core dump."""
    if sys.platform == "win32":
        return
    import resource  # noqa: PLC0415 (not everywhere)

    limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_FSIZE: 0}
    if sys.platform == "linux":  # elsewhere address space is not what memory takes
        limits[resource.RLIMIT_AS] = MEMORY_BYTES
    for kind, most in limits.items():
        resource.setrlimit(kind, (most, most))


if __name__ == "__main__":
    confine()
    try:
        serve(Connection(int(sys.argv[1])), float(sys.argv[2]))
    except (EOFError, OSError):
        sys.exit(0)
