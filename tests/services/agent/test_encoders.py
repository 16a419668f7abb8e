"""Vectors and public encoders: what they make of a row depends on that row alone, and nothing else shows."""

import hashlib
import io
import os
import resource
import signal
import sqlite3
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from threading import Timer
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from agent_fakes import AttackedAgent, MakeAgent
from onnx import helper
from PIL import Image
from pydantic import ValidationError
from small_models import FLOAT, STRING, centred, linear, model_of, parsed, put

from tacit_protocol.domain import (
    VECTOR_MAX,
    DataError,
    Domain,
    Encoder,
    EncoderModel,
    ImageColumn,
    InputColumn,
    Projection,
    TextColumn,
    VectorColumn,
    clipped_to_norm,
)
from tacit_protocol.messages.encoding import decode
from tacit_protocol.messages.study import DeclineMessage, ReleaseMessage
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.signing import DECLINE_TYPE, RELEASE_TYPE, open_envelope
from tacit_services.agent.data import encoders as encoders_module
from tacit_services.agent.data.encoders import (
    EncoderFolders,
    LoadedModel,
    ModelRefusedError,
    RowEncoders,
)
from tacit_services.agent.data.opening import open_source
from tacit_services.agent.data.source import Source
from tacit_services.agent.data.table import SourceTable, TableBounds
from tacit_services.agent.schema import State
from tacit_services.agent.study.loops import work

Floats = npt.NDArray[np.float64]
NOWHERE = EncoderFolders()
LENGTH, SEED = 6, "0123456789abcdef" * 2
RNG = np.random.default_rng(1)
VECTORS = RNG.normal(size=(40, LENGTH))
VECTOR = VectorColumn(name="v", length=LENGTH, norm=2.0)
PROJECTED = Encoder(inputs=(VECTOR,), projection=Projection(seed=SEED), outputs=("a", "b", "c"))


def written(folder: Path, values: Any, name: str = "rows.parquet", **columns: Any) -> Source:
    pq.write_table(pa.table({"v": values, **columns}), folder / name, row_group_size=16)
    return open_source(name, None, folder)


def made(
    source: Source,
    encoder: Encoder,
    folders: EncoderFolders = NOWHERE,
    **options: Any,
) -> Floats:
    """Return the encoded columns of a source's rows, (rows, outputs), in [0, 1]."""
    table = SourceTable(
        source, Domain(columns=encoder.columns()), encoders=RowEncoders((encoder,), folders), **options
    )
    found = np.concatenate([chunk.numeric for chunk in table.chunks()])
    assert ((found >= 0) & (found <= 1)).all()
    return found


def of_model(content: bytes, folder: Path, inputs: Sequence[InputColumn], length: int) -> Encoder:
    digest = put(content, folder)
    model = EncoderModel(sha256=digest, licence="MIT", length=length, norm=4.0)
    return Encoder(inputs=tuple(inputs), model=model, outputs=tuple(f"m{i}" for i in range(length)))


def expected(vectors: Floats) -> Floats:
    """Return the projected vectors as encoded columns, by a formula of its own."""
    drawn = np.random.default_rng(int(SEED, 16)).standard_normal((3, LENGTH))
    directions = drawn / np.sqrt((drawn**2).sum(axis=1, keepdims=True))
    lengths = np.sqrt((vectors**2).sum(axis=1, keepdims=True))
    clipped = vectors * np.minimum(1, 2.0 / lengths)
    bound = 2.0 * min(1, 4 / np.sqrt(LENGTH))
    return np.clip((clipped @ directions.T + bound) / (2 * bound), 0, 1)


# Vectors.


def spelled(brackets: str = "[]") -> list[str]:
    return [brackets[0] + ", ".join(map(repr, row)) + brackets[1] for row in VECTORS.tolist()]


def lists(kind: pa.DataType) -> pa.Array:
    return pa.array(VECTORS.tolist(), kind)


@pytest.mark.parametrize(
    "values",
    [
        lists(pa.list_(pa.float64(), LENGTH)),
        lists(pa.list_(pa.float64())),
        lists(pa.large_list(pa.float64())),
        pa.array(spelled()),
        pa.array(spelled()).dictionary_encode(),
    ],
    ids=lambda values: str(values.type)[:20],
)
def test_vectors_are_clipped_and_projected(tmp_path: Path, values: pa.Array) -> None:
    found = made(written(tmp_path, values), PROJECTED)
    assert np.allclose(found, expected(VECTORS), rtol=0, atol=1e-12)


def test_vectors_of_other_sources_are_the_same(tmp_path: Path) -> None:
    whole = made(written(tmp_path, lists(pa.list_(pa.float64(), LENGTH))), PROJECTED)
    (tmp_path / "rows.csv").write_text("v,w\n" + "".join(f'"{text}",1\n' for text in spelled()))
    with sqlite3.connect(tmp_path / "rows.sqlite3") as database:
        database.execute("create table rows (v text)")
        database.executemany("insert into rows values (?)", [(text,) for text in spelled()])
    (tmp_path / "parts").mkdir()
    for place, kind in enumerate((pa.float64(), pa.float64())):
        part = VECTORS[20 * place :][:20].tolist()
        pq.write_table(
            pa.table({"v": pa.array(part, pa.list_(kind))}), tmp_path / "parts" / f"{place}.parquet"
        )
    for source in (
        open_source("rows.csv", None, tmp_path),
        open_source("sqlite:///rows.sqlite3", "select * from rows", tmp_path),
        open_source("parts", None, tmp_path),
    ):
        assert np.array_equal(made(source, PROJECTED), whole)


def test_long_vectors_come_whole_from_databases(tmp_path: Path) -> None:
    """Their texts are many times as long as those of categories, which are cut."""
    duckdb = pytest.importorskip("duckdb")
    encoder = Encoder(
        inputs=(VectorColumn(name="v", length=VECTOR_MAX, norm=2.0),),
        projection=Projection(seed=SEED),
        outputs=("a",),
    )
    values = np.random.default_rng(2).normal(size=(3, VECTOR_MAX))
    whole = made(written(tmp_path, pa.array(values.tolist())), encoder)
    with sqlite3.connect(tmp_path / "rows.sqlite3") as database:
        database.execute("create table rows (v text)")
        database.executemany("insert into rows values (?)", [(str(row),) for row in values.tolist()])
    with duckdb.connect(str(tmp_path / "rows.duckdb")) as database:
        database.execute(
            "create table rows as select * from read_parquet(?)", [str(tmp_path / "rows.parquet")]
        )
    for kind in ("sqlite", "duckdb"):
        source = open_source(
            f"{kind}:///rows.{kind}{'3' * (kind == 'sqlite')}", "select * from rows", tmp_path
        )
        assert np.array_equal(made(source, encoder), whole)


def test_arrays_of_postgresql_are_vectors(tmp_path: Path, postgres_url: str) -> None:
    """The longest come whole; a null array, one of two dimensions and one that holds a null are missing."""
    values = np.random.default_rng(2).normal(size=(3, VECTOR_MAX))
    encoder = PROJECTED.model_copy(update={"inputs": (VectorColumn(name="v", length=VECTOR_MAX, norm=2.0),)})
    whole = made(written(tmp_path, pa.array(values.tolist())), encoder)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE rows (place int, v float8[])")
        halves = [[row[: VECTOR_MAX // 2].tolist(), row[VECTOR_MAX // 2 :].tolist()] for row in values[:1]]
        holed: list[Any] = [None, *values[0, 1:].tolist()]
        for place, row in enumerate([*values.tolist(), None, halves[0], holed]):
            connection.execute("INSERT INTO rows VALUES (%s, %s)", (place, row))
    found = made(open_source(postgres_url, "SELECT * FROM rows ORDER BY place", tmp_path), encoder)
    assert np.array_equal(found[:3], whole)
    assert (found[3:] == 0.5).all()


BAD: dict[str, Any] = {
    "null": None,
    "too short": [1.0] * (LENGTH - 1),
    "too long": [1.0] * (LENGTH + 1),
    "empty": [],
    "huge": [1.0] * 100_000,
    "NaN": [np.nan, *[1.0] * (LENGTH - 1)],
    "infinite": [1.0, -np.inf, *[1.0] * (LENGTH - 2)],
    "a null in it": [1.0, None, *[1.0] * (LENGTH - 2)],
    "of largest numbers": [1e308] * LENGTH,
    "of least numbers": [5e-324] * LENGTH,
    "of noughts": [0.0] * LENGTH,
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
@pytest.mark.parametrize("as_text", [False, True])
def test_an_odd_vector_changes_nothing_but_its_own_row(tmp_path: Path, bad: Any, as_text: bool) -> None:
    """The search that sensitivity rests on: one row is replaced, and every other stays to the last bit."""

    def column(rows: list[Any]) -> pa.Array:
        return (
            pa.array([str(row) if row is not None else None for row in rows]) if as_text else pa.array(rows)
        )

    rows: list[Any] = VECTORS.tolist()
    before = made(written(tmp_path, column(rows)), PROJECTED)
    for place in (0, 17, 39):
        changed = [*rows[:place], bad, *rows[place + 1 :]]
        after = made(written(tmp_path, column(changed)), PROJECTED, bounds=TableBounds(chunk_rows_max=7))
        others = np.arange(len(rows)) != place
        assert np.array_equal(before[others], after[others])
        known = bad is not None and len(bad) == LENGTH and None not in bad and np.isfinite(bad).all()
        assert (after[place] == 0.5).all() or known


def test_text_that_is_no_vector_is_missing(tmp_path: Path) -> None:
    texts = ["[]", "[1,2,3,4,5,6", "1,2,3,4,5,6", "[1,2,3,4,5,six]", "", "[1;2;3;4;5;6]", "[[1,2,3,4,5,6]]"]
    found = made(written(tmp_path, pa.array([*texts, "{1,2,3,4,5,6}"])), PROJECTED)
    assert (found[:-1] == 0.5).all()
    assert (found[-1] != 0.5).any()


def test_norms_hold_for_any_numbers() -> None:
    """Whatever sizes of numbers float64 has, no clipped vector is longer than its norm but by rounding."""
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(4000, 5)) * 10.0 ** rng.uniform(-320, 308, (4000, 1))
    for norm in (1e-3, 1.0, 1e100):
        lengths = np.linalg.norm(clipped_to_norm(vectors, norm) / norm, axis=1)
        assert lengths.max() <= 1 + 1e-14
        inside = np.abs(vectors).max(axis=1) < norm / 3
        assert np.array_equal(clipped_to_norm(vectors, norm)[inside], vectors[inside])
    matrix = PROJECTED.matrix()
    assert matrix is not None
    assert np.abs(clipped_to_norm(VECTORS, 2.0) @ matrix.T).max() <= 2.0


def test_a_matrix_product_of_all_rows_would_be_found_out() -> None:
    """By linear algebra at once, a row's product depends on how many rows there are: the planted mistake."""
    rng = np.random.default_rng(4)
    vectors, matrix = rng.normal(size=(64, 333)), rng.normal(size=(7, 333))
    encoder = Encoder(
        inputs=(VectorColumn(name="v", length=333, norm=100.0),),
        projection=Projection(sha256="0" * 64, licence="CC0-1.0"),
        outputs=tuple("abcdefg"),
    )
    parts = encoder.matrix(matrix)
    assert parts is not None
    whole = np.stack(list(encoder.made_of(vectors, parts).values()))
    batches = [vectors @ parts.T]
    for size in (1, 2, 3, 5, 9):
        cut = [encoder.made_of(vectors[start : start + size], parts) for start in range(0, 64, size)]
        assert np.array_equal(np.concatenate([np.stack(list(one.values())) for one in cut], axis=1), whole)
        batches.append(np.concatenate([vectors[i : i + size] @ parts.T for i in range(0, 64, size)]))
    assert any(not np.array_equal(batches[0], other) for other in batches[1:])


def test_a_file_of_a_projection_is_taken_at_unit_rows(tmp_path: Path) -> None:
    matrix = np.array([[3.0, 4.0], [0.3, 0.4]])
    stored = io.BytesIO()
    np.save(stored, matrix)
    digest = put(stored.getvalue(), tmp_path)
    encoder = Encoder(
        inputs=(VectorColumn(name="v", length=2, norm=1.0),),
        projection=Projection(sha256=digest, licence="CC0-1.0"),
        outputs=("a", "b"),
    )
    found = made(written(tmp_path, pa.array([[0.6, 0.8]])), encoder, EncoderFolders(tmp_path))
    assert np.allclose(found, [[1.0, 0.75]])


# What the public files may be.


def test_a_file_is_known_by_its_bytes(tmp_path: Path) -> None:
    encoder = of_model(linear(np.eye(LENGTH, dtype=np.float32)), tmp_path, [VECTOR], LENGTH)
    folders, digest = EncoderFolders(tmp_path), encoder.files[0][0]
    assert folders.lacks([encoder]) is None
    (tmp_path / digest).write_bytes(linear(2 * np.eye(LENGTH, dtype=np.float32)))
    assert "something else" in str(folders.lacks([encoder]))
    source = written(tmp_path, pa.array(VECTORS.tolist()))
    with pytest.raises(DataError, match="something else"):
        made(source, encoder, folders)
    (tmp_path / digest).unlink()
    assert "copy its file there" in str(folders.lacks([encoder]))
    for drawn in (b"", b"\x93NUMPY nonsense", b"PK\x03\x04"):
        wrong = Projection(sha256=put(drawn, tmp_path), licence="MIT")
        with pytest.raises(DataError, match="no projection of the study's shape"):
            made(source, PROJECTED.model_copy(update={"projection": wrong}), folders)


def _with_external_weights() -> bytes:
    model = parsed(linear(np.eye(2, dtype=np.float32)))
    tensor = model.graph.initializer[0]
    tensor.data_location = 1
    tensor.external_data.add(key="location", value="/etc/passwd")
    return bytes(model.SerializeToString())


def _within_a_branch(node: Any) -> bytes:
    """Return a model whose node stands in the branch of a condition."""
    branch = helper.make_graph([node], "b", [], [helper.make_tensor_value_info("r", FLOAT, None)])
    chosen = helper.make_node("If", ["c"], ["out"], then_branch=branch, else_branch=branch)
    return model_of([chosen], [("in", FLOAT, [2])], weights={"c": np.array(True)})


def _with_a_function() -> bytes:
    function = helper.make_function(
        "own", "F", ["x"], ["y"], [helper.make_node("Neg", ["x"], ["y"])], [helper.make_opsetid("", 17)]
    )
    return model_of([helper.make_node("Neg", ["in"], ["out"])], [("in", FLOAT, [2])], functions=[function])


REFUSED: dict[str, tuple[bytes, str]] = {
    "no model": (b"no model at all", "no-model"),
    "a broken graph": (model_of([helper.make_node("Neg", ["x"], ["out"])], [("in", FLOAT, [2])]), "no-model"),
    "weights elsewhere": (_with_external_weights(), "external"),
    "random": (_within_a_branch(helper.make_node("RandomNormal", [], ["r"], shape=[2])), "random"),
    "another domain": (
        model_of([helper.make_node("Evil", ["in"], ["out"], domain="own")], [("in", FLOAT, [2])]),
        "operators",
    ),
    "functions": (_with_a_function(), "operators"),
    "two inputs": (
        model_of([helper.make_node("Add", ["in", "b"], ["out"])], [("in", FLOAT, [2]), ("b", FLOAT, [2])]),
        "inputs",
    ),
    "a text": (
        model_of(
            [
                helper.make_node(
                    "LabelEncoder",
                    ["in"],
                    ["out"],
                    domain="ai.onnx.ml",
                    keys_strings=["a"],
                    values_floats=[1.0],
                )
            ],
            [("in", STRING, [2])],
        ),
        "inputs",
    ),
}


@pytest.mark.parametrize(("content", "reason"), REFUSED.values(), ids=REFUSED)
def test_models_that_could_do_more_than_compute_are_refused(content: bytes, reason: str) -> None:
    with pytest.raises(ModelRefusedError, match=reason):
        LoadedModel(content, [VectorColumn(name="v", length=2, norm=1.0)])


def test_a_batch_is_never_given_to_a_model() -> None:
    """The mean of a batch, as some models take, lets a row change other rows: the planted mistake."""
    content, rows = centred(LENGTH), VECTORS.astype(np.float32)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    changed = rows.copy()
    changed[0] = 100.0
    first, second = (session.run(None, {"in": batch})[0] for batch in (rows, changed))
    assert not np.array_equal(first[1:], second[1:])
    model = LoadedModel(content, [VECTOR])
    alone = [model.output_of([row.tobytes()]) for row in VECTORS]
    assert alone == [bytes(8 * LENGTH)] * len(rows)


def test_a_models_outputs_have_no_memory() -> None:
    """Every row of 40, whatever came before it: the same bits."""
    rng = np.random.default_rng(5)
    weights = {
        "w": rng.normal(size=(LENGTH, 33)).astype(np.float32),
        "k": rng.normal(size=(4, 1, 3)).astype("f"),
    }
    nodes = [
        helper.make_node("MatMul", ["in", "w"], ["h"]),
        helper.make_node("Unsqueeze", ["h", "axis"], ["u"]),
        helper.make_node("Conv", ["u", "k"], ["c"]),
        helper.make_node("Softmax", ["c"], ["s"]),
        helper.make_node("ReduceMean", ["s"], ["out"], axes=[2]),
    ]
    content = model_of(nodes, [("in", FLOAT, [1, LENGTH])], weights=weights | {"axis": np.array([1])})
    model = LoadedModel(content, [VECTOR])
    once = [model.output_of([row.tobytes()]) for row in VECTORS]
    for _ in range(3):
        for place in rng.permutation(40).tolist():
            assert model.output_of([VECTORS[place].tobytes()]) == once[place]


# What runs them.


def test_a_model_makes_columns_in_a_process_of_its_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The square root of a row's sum, which of one row is no number: that row alone is missing."""
    nodes = [
        helper.make_node("ReduceSum", ["in"], ["sum"], keepdims=1),
        helper.make_node("Sqrt", ["sum"], ["out"]),
    ]
    content = model_of(nodes, [("in", FLOAT, [1, 2])])
    encoder = of_model(content, tmp_path, [VectorColumn(name="v", length=2, norm=1.0)], 1)
    rows = [[2.0, 2.0], [-2.0, -2.0], None, [np.inf, 1.0], [1.0, 0.0]]
    found = made(written(tmp_path, pa.array(rows)), encoder, EncoderFolders(tmp_path))[:, 0]
    # Bounds are -4 to 4: 2 and 1 of 8, and the middle where the value is missing.
    assert found.tolist() == [0.75, 0.5, 0.5, 0.5, 0.625]
    assert capfd.readouterr() == ("", "")


def repeating(body: Any) -> bytes:
    """Return a model that does something to its input as often as its first number says."""
    loop = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["went"]), body],
        "loop",
        [
            helper.make_tensor_value_info("i", 7, []),
            helper.make_tensor_value_info("go", 9, []),
            helper.make_tensor_value_info("y", FLOAT, None),
        ],
        [helper.make_tensor_value_info("went", 9, []), helper.make_tensor_value_info("z", FLOAT, None)],
    )
    nodes = [
        helper.make_node("ReduceSum", ["in"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["count"], to=7),
        helper.make_node("Loop", ["count", "yes", "in"], ["looped"], body=loop),
        helper.make_node("ReduceMax", ["looped"], ["out"], keepdims=0),
    ]
    return model_of(nodes, [("in", FLOAT, [1, 2])], weights={"yes": np.array(True)})


@pytest.mark.long
def test_a_row_that_takes_all_time_or_memory_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(encoders_module, "ROW_S", 5.0)
    column = VectorColumn(name="v", length=2, norm=1.0)
    for body in (
        helper.make_node("Identity", ["y"], ["z"]),
        helper.make_node("Concat", ["y", "y"], ["z"], axis=0),
    ):
        encoder = of_model(repeating(body), tmp_path, [column], 1)
        rows = [[2.0, 1.0], [1e18, 1e18], [1.0, 0.0], [40.0, 0.0], [-1.0, 3.0]]
        found = made(written(tmp_path, pa.array(rows)), encoder, EncoderFolders(tmp_path))[:, 0]
        largest = [0.75, 0.5, 0.625, 1.0, 0.875]
        if body.op_type == "Concat":
            largest[3] = 0.5  # 2^40 copies
        assert found.tolist() == largest
    assert capfd.readouterr() == ("", "")


@pytest.mark.long
def test_a_row_is_given_a_processors_time_and_not_the_clocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a machine gives its process no time, here because it is stopped, a row is waited for."""
    monkeypatch.setattr(encoders_module, "ROW_S", 0.5)
    encoder = of_model(linear(np.eye(LENGTH, dtype=np.float32)), tmp_path, [VECTOR], LENGTH)
    with encoders_module.ModelProcess((tmp_path / encoder.files[0][0]).read_bytes(), encoder) as model:
        assert model._process is not None
        first, process = model.vector_of([VECTORS[0].tobytes()]), model._process
        process.send_signal(signal.SIGSTOP)
        Timer(1.5, process.send_signal, [signal.SIGCONT]).start()
        assert np.array_equal(model.vector_of([VECTORS[0].tobytes()]), first)
        assert model._process is process


def _of_a_size(elements: int) -> bytes:
    """Return a model that adds the largest of so many zeros, which a loader may make beforehand."""
    nodes = [
        helper.make_node("ConstantOfShape", ["size"], ["zeros"]),
        helper.make_node("ReduceMax", ["zeros"], ["none"], keepdims=0),
        helper.make_node("Add", ["in", "none"], ["out"]),
    ]
    return model_of(nodes, [("in", FLOAT, [1, 2])], weights={"size": np.array([elements])})


@pytest.mark.parametrize("elements", [10, 2**32, pytest.param(2**40, marks=pytest.mark.long)])
def test_a_model_that_takes_all_memory_ends_nothing_but_its_own_process(
    tmp_path: Path, elements: int
) -> None:
    """By the limit of the agent's own child, at loading or at a row; 2^32 numbers are 16 GiB."""
    encoder = of_model(_of_a_size(elements), tmp_path, [VectorColumn(name="v", length=2, norm=9.0)], 2)
    source = written(tmp_path, pa.array([[1.0, 2.0], [2.0, 1.0]]))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        found = made(source, encoder, EncoderFolders(tmp_path)).tolist()
    except DataError as error:
        found = [["refused"], str(error).startswith("a model of the study does not run here")]
    assert (found == [[0.625, 0.75], [0.75, 0.625]]) == (elements == 10)
    assert elements == 10 or found in ([[0.5, 0.5]] * 2, [["refused"], True])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


@pytest.mark.parametrize("count", [4, pytest.param(100, marks=pytest.mark.long)])
def test_mutated_models_are_refused_or_run_and_end_nothing_but_their_process(
    tmp_path: Path, count: int
) -> None:
    whole, chance = linear(np.eye(LENGTH, dtype=np.float32)), np.random.default_rng(5)
    source = written(tmp_path, pa.array(VECTORS[:3].tolist()))
    for number in range(count):
        content = bytearray(whole[: len(whole) - int(chance.integers(0, 2) * chance.integers(1, 200))])
        for place in chance.integers(0, len(content), 3):
            content[place] = chance.integers(0, 256)
        encoder = of_model(bytes(content), tmp_path, [VECTOR], LENGTH)
        words = "a model of the study does not run here"
        try:
            assert np.isfinite(made(source, encoder, EncoderFolders(tmp_path))).all(), number
        except DataError as error:
            words = str(error)
        assert words.startswith("a model of the study does not run here"), number


@pytest.mark.long
def test_a_process_that_dies_is_started_again(tmp_path: Path) -> None:
    encoder = of_model(linear(np.eye(LENGTH, dtype=np.float32)), tmp_path, [VECTOR], LENGTH)
    with encoders_module.ModelProcess((tmp_path / encoder.files[0][0]).read_bytes(), encoder) as model:
        first = model.vector_of([VECTORS[0].tobytes()])
        assert model._process is not None
        model._process.kill()
        assert np.isnan(model.vector_of([VECTORS[0].tobytes()])).all()
        assert np.array_equal(model.vector_of([VECTORS[0].tobytes()]), first)
        assert np.isnan(model.vector_of([b"no vector"])).all()


def png(side: int, shade: int) -> bytes:
    stored = io.BytesIO()
    Image.new("L", (side, side), shade).save(stored, "PNG")
    return stored.getvalue()


def bomb() -> bytes:
    """Return a PNG of 60000 x 60000 pixels in a few kilobytes."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))
        )

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(10**6)))
        + chunk(b"IEND", b"")
    )


GREY = ImageColumn(name="photo", width=2, height=2, channels="grey")


def test_images_are_resized_and_scaled() -> None:
    identity = model_of([helper.make_node("Identity", ["in"], ["out"])], [("in", FLOAT, [1, "c", "h", "w"])])
    colours = io.BytesIO()
    Image.new("RGB", (5, 3), (255, 0, 51)).save(colours, "PNG")
    for channels, layout, wanted in (
        ("rgb", "channels-first", [1, 1, 0, 0, 0.2, 0.2]),
        ("bgr", "channels-first", [0.2, 0.2, 0, 0, 1, 1]),
        ("rgb", "channels-last", [1, 0, 0.2, 1, 0, 0.2]),
    ):
        column = ImageColumn.model_validate_json(
            f'{{"name": "photo", "width": 2, "height": 1, "channels": "{channels}", "layout": "{layout}"}}'
        )
        pixels = np.frombuffer(LoadedModel(identity, [column]).output_of([colours.getvalue()]))
        assert np.allclose(pixels, wanted)
    shifted = GREY.model_copy(update={"mean": (0.5,), "deviation": (0.25,)})
    pixels = np.frombuffer(LoadedModel(identity, [shifted]).output_of([png(9, 255)]))
    assert np.allclose(pixels, 2.0)
    for odd in (b"", b"no image", png(9, 255)[:40], bomb(), b"GIF89a"):
        with pytest.raises((OSError, ValueError, SyntaxError, Image.DecompressionBombError)):
            LoadedModel(identity, [GREY]).output_of([odd])


def test_no_path_leads_out_of_the_folder_of_images(tmp_path: Path) -> None:
    images, outside = tmp_path / "images", tmp_path / "outside"
    (images / "deep").mkdir(parents=True)
    outside.mkdir()
    for place in (images / "a.png", images / "deep" / "b.png", outside / "c.png"):
        place.write_bytes(png(4, 200))
    (images / "link.png").symlink_to(outside / "c.png")
    (images / "door").symlink_to(outside)
    os.mkfifo(images / "pipe.png")
    (images / "large.png").write_bytes(b"")
    os.truncate(images / "large.png", 2**30)
    folders = EncoderFolders(images=images)
    assert (
        folders.image("a.png") == folders.image("deep/b.png") == folders.image("deep/../a.png") == png(4, 200)
    )
    for path in (
        *("../outside/c.png", str(outside / "c.png"), "link.png", "door/c.png", "deep/../../outside/c.png"),
        *("", ".", "..", "deep", "absent.png", "a.png/x", "a\0.png", "x" * 5000, "pipe.png", "large.png"),
        *("/etc/passwd", "/proc/self/environ", "/dev/zero", "~/.ssh/id_rsa"),
    ):
        assert folders.image(path) is None, path


def test_texts_are_given_whole_to_a_model() -> None:
    """Words of a public list are counted by operators of the standard and a tokenizer."""
    nodes = [
        helper.make_node("StringNormalizer", ["in"], ["low"], case_change_action="LOWER", locale="C"),
        helper.make_node(
            "Tokenizer",
            ["low"],
            ["words"],
            domain="com.microsoft",
            mark=0,
            mincharnum=1,
            pad_value="#",
            separators=[" "],
        ),
        helper.make_node(
            "TfIdfVectorizer",
            ["words"],
            ["out"],
            mode="TF",
            max_gram_length=1,
            max_skip_count=0,
            min_gram_length=1,
            ngram_counts=[0],
            ngram_indexes=[0, 1],
            pool_strings=["fever", "cough"],
        ),
    ]
    model = LoadedModel(model_of(nodes, [("in", STRING, [1])]), [TextColumn(name="note")])
    found = [
        np.frombuffer(model.output_of([text])) for text in (b"Fever and COUGH fever", b"", "größe".encode())
    ]
    assert [one.tolist() for one in found] == [[2, 1], [0, 0], [0, 0]]


# Studies.


def test_what_a_study_may_say() -> None:
    for wrong in (
        {"projection": None},
        {"outputs": ("a", "a")},
        {"inputs": (TextColumn(name="note"),)},
        {"inputs": (VECTOR, VECTOR)},
        {"projection": Projection.model_construct(seed=None)},
    ):
        with pytest.raises(ValidationError):
            Encoder.model_validate_json(PROJECTED.model_copy(update=wrong).model_dump_json())
    with pytest.raises(ValidationError):
        VectorColumn(name="v", length=VECTOR_MAX + 1, norm=1.0)
    with pytest.raises(ValidationError):
        Projection(seed=SEED, sha256="0" * 64, licence="MIT")


def study_fields(encoder: Encoder) -> dict[str, Any]:
    return {"domain": Domain(columns=encoder.columns()), "encoders": (encoder,)}


def with_vectors(setup: Any) -> None:
    rows = "".join(f'"{text}",{place}\n' for place, text in enumerate([*spelled(), *spelled()][:60]))
    (setup.world.folder / "patients.csv").write_text("x,y\n" + rows)


def test_an_agent_answers_for_vectors_that_its_policy_lists(make: MakeAgent) -> None:
    declared = 'vectors = [{kind = "vector", name = "x", length = 6, norm = 2.0}]'
    setup = make(data_set=declared)
    with_vectors(setup)
    named = VECTOR.model_copy(update={"name": "x"})
    fitting = PROJECTED.model_copy(update={"inputs": (named,)})
    found = {}
    for title, column in {
        "fits": named,
        "longer": named.model_copy(update={"norm": 2.5}),
        "of another length": named.model_copy(update={"length": 5}),
        "not listed": named.model_copy(update={"name": "y"}),
    }.items():
        encoder = fitting.model_copy(update={"inputs": (column,)})
        asked = setup.world.ask(setup.tester, setup.world.study(title=title, **study_fields(encoder)))
        setup.turn()
        found[title] = (setup.row(asked).state, setup.row(asked).problem)
    refused = (State.REFUSED, "policy-refused")
    assert found == {
        "fits": (State.SENT, None),
        "longer": refused,
        "of another length": refused,
        "not listed": refused,
    }


def asked_about_images(make: MakeAgent) -> tuple[AttackedAgent, str]:
    """Return an agent, and a study of the mean shade, -1 to 1, of 58 white images and two broken ones."""
    content = model_of(
        [helper.make_node("ReduceMean", ["in"], ["out"], axes=[1, 2, 3], keepdims=1)],
        [("in", FLOAT, [1, 1, 2, 2])],
    )
    digest = hashlib.sha256(content).hexdigest()
    setup = make(policy=f'encoders = ["{digest}"]', data_set='image_folder = "images"')
    put(content, setup.world.folder / "encoders")
    images = setup.world.folder / "images"
    images.mkdir()
    for place in range(60):
        (images / f"{place}.png").write_bytes(png(4, 255) if place > 1 else b"")
    paths = "".join(f"{place}.png\n" for place in range(60))
    (setup.world.folder / "patients.csv").write_text("x\n" + paths)
    encoder = Encoder(
        inputs=(GREY.model_copy(update={"name": "x"}),),
        model=EncoderModel(sha256=digest, licence="CC0-1.0", length=1, norm=1.0),
        outputs=("shade",),
    )
    study = setup.world.study(budget=Budget.of("1", "1e-6"), **study_fields(encoder))
    return setup, setup.world.ask(setup.tester, study)


def test_an_agent_runs_a_listed_model_on_its_images(make: MakeAgent) -> None:
    """An image that cannot be read counts as 0: as encoded they sum to 59, and to 30 were none read.

    Laplace noise of scale 1 passes 14 with chance 8e-7.
    """
    setup, asked = asked_about_images(make)
    setup.turn()
    assert setup.row(asked).state is State.SENT
    ((_, _, body),) = setup.tester.received
    release = decode(ReleaseMessage, open_envelope(body, RELEASE_TYPE, setup.world.agent.public_hex)).release
    vector = release.vectors["sum"]
    assert release.units == 60
    assert abs(vector.values[0] * 2.0**vector.exponent - 59) < 14


@pytest.mark.long
def test_a_model_that_a_row_ends_and_no_process_runs_again_ends_no_study(
    make: MakeAgent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decline would tell of that row: the study is tried again, a few times, and answered then."""
    setup, asked = asked_about_images(make)
    answer, rows = encoders_module.ModelProcess._asked, list[bytes]()

    def dying(model: encoders_module.ModelProcess, parts: Sequence[bytes]) -> bytes | None:
        rows.append(parts[0])
        if len(rows) == 4:
            assert model._process is not None
            model._process.kill()
            monkeypatch.setattr(encoders_module.sys, "executable", "/nowhere")
        return answer(model, parts)

    with monkeypatch.context() as crowded:
        crowded.setattr(encoders_module.ModelProcess, "_asked", dying)
        setup.turn()
    assert (len(rows), setup.row(asked).state, setup.debits()) == (4, State.APPROVED, [])
    monkeypatch.undo()
    work(setup.agent)
    assert (setup.row(asked).state, len(setup.debits())) == (State.SENT, 1)


def test_files_run_where_the_policy_lists_them_and_what_is_missing_is_a_public_rule(make: MakeAgent) -> None:
    """A file that is not listed is refused without a word, one that is listed and not there by the rule."""
    listed, other = "1" * 64, "2" * 64
    setup = make(policy=f'encoders = ["{listed}"]')
    with_vectors(setup)
    rules = {}
    for digest in (listed, other):
        named = VECTOR.model_copy(update={"name": "x"})
        encoder = PROJECTED.model_copy(
            update={"inputs": (named,), "projection": Projection(sha256=digest, licence="CC0-1.0")}
        )
        asked = setup.world.ask(setup.tester, setup.world.study(title=digest[:5], **study_fields(encoder)))
        setup.turn()
        body = setup.tester.declines[asked]
        message = decode(DeclineMessage, open_envelope(body, DECLINE_TYPE, setup.world.agent.public_hex))
        rules[digest] = (setup.row(asked).problem, message.rule)
    assert rules == {listed: ("study-refused", "no-encoder"), other: ("policy-refused", None)}
    assert setup.debits() == []


def test_a_catalogue_tells_which_encoders_run_on_which_vectors(make: MakeAgent) -> None:
    """What an agent refuses, an analyst is told before: by files, vectors and columns."""
    listed = "1" * 64
    setup = make(
        policy=f'encoders = ["{listed}"]\ncatalogue = true',
        data_set='vectors = [{kind = "vector", name = "x", length = 6, norm = 2.0}]',
    )
    entry = setup.agent.catalogue()
    assert entry.encoders == (listed,)
    (held,) = entry.data_sets
    assert (held.vectors[0].name, held.vectors[0].norm, held.other_columns) == ("x", 2.0, ("absent",))

    def refusals(digest: str = listed, **column: Any) -> list[str]:
        encoder = Encoder(
            inputs=(VectorColumn(**{"name": "x", "length": 6, "norm": 2.0, **column}),),
            projection=Projection(sha256=digest, licence="MIT"),
            outputs=("a", "b", "c"),
        )
        study = setup.world.study(procedure="fake_sum", **study_fields(encoder))
        entry_here = entry.model_copy(update={"procedures": ("fake_sum",)})
        return [words for words in entry_here.refusals(study, study.owners[0]) if "epsilon" not in words]

    assert refusals() == []
    assert "does not run the encoder 222" in refusals("2" * 64)[0]
    assert "norm of 2 at most" in refusals(norm=3.0)[0]
    assert "lets no study use a column y" in refusals(name="y")[0]
