"""Small ONNX models, made here: what encoders are tested with."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, STRING = TensorProto.FLOAT, TensorProto.STRING


def model_of(
    nodes: Sequence[Any],
    inputs: Sequence[tuple[str, int, Sequence[int | str]]],
    output: str = "out",
    weights: dict[str, npt.NDArray[Any]] | None = None,
    **more: Any,
) -> bytes:
    """Return the bytes of a model of nodes of the standard, whose one output is of any shape."""
    graph = helper.make_graph(
        list(nodes),
        "small",
        [helper.make_tensor_value_info(name, kind, list(shape)) for name, kind, shape in inputs],
        [helper.make_tensor_value_info(output, FLOAT, None)],
        [numpy_helper.from_array(values, name) for name, values in (weights or {}).items()],
    )
    versions = [helper.make_opsetid(*one) for one in (("", 17), ("com.microsoft", 1), ("ai.onnx.ml", 3))]
    return bytes(helper.make_model(graph, opset_imports=versions, ir_version=8, **more).SerializeToString())


def linear(weights: npt.NDArray[np.float32]) -> bytes:
    """Return the model that multiplies a vector by a matrix (length, outputs)."""
    return model_of(
        [helper.make_node("MatMul", ["in", "w"], ["out"])],
        [("in", FLOAT, ["rows", weights.shape[0]])],
        weights={"w": weights},
    )


def centred(length: int) -> bytes:
    """Return the model that takes the batch's mean from each of its rows."""
    nodes = [
        helper.make_node("ReduceMean", ["in"], ["mean"], axes=[0]),
        helper.make_node("Sub", ["in", "mean"], ["out"]),
    ]
    return model_of(nodes, [("in", FLOAT, ["rows", length])])


def put(content: bytes, folder: Path) -> str:
    """Write a public file as an agent's folder holds it; return its SHA-256."""
    digest = hashlib.sha256(content).hexdigest()
    folder.mkdir(exist_ok=True)
    (folder / digest).write_bytes(content)
    return digest


def parsed(content: bytes) -> Any:
    """Return a model's message, to be changed."""
    return onnx.load_model_from_string(content)
