"""Images at two owners' agents, through a public model, to a verdict: P0's experiment on faces, in shape."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import helper
from PIL import Image
from sklearn.datasets import load_digits
from small_models import FLOAT, model_of, put

from tacit.results import TwoSampleResult
from tacit.setup.configuration import DataSetSetup, PolicySetup
from tacit.setup.federation import LocalFederation, OwnerSetup
from tacit.studies.draft import StudyDraft

EPSILON, SIDE, OUTPUTS = 4.0, 8, 6

StartFederation = Callable[[Sequence[OwnerSetup]], LocalFederation]


def model() -> bytes:
    """Return a convolution, a bound, and a linear map, whose weights are drawn from a public seed."""
    rng = np.random.default_rng(7)
    nodes = [
        helper.make_node("Conv", ["in", "kernel"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Flatten", ["r"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["l"]),
        helper.make_node("Tanh", ["l"], ["out"]),
    ]
    weights = {
        "kernel": rng.normal(size=(4, 1, 3, 3)).astype(np.float32),
        "w": (rng.normal(size=(4 * 36, OUTPUTS)) / 10).astype(np.float32),
    }
    return model_of(nodes, [("in", FLOAT, [1, 1, SIDE, SIDE])], weights=weights)


def owner_of(folder: Path, name: str, digits: range, encoder: str) -> OwnerSetup:
    """Write an owner's images of some digits, and their paths; one of a hundred cannot be read."""
    found = load_digits()
    images = folder / f"{name}-images"
    images.mkdir()
    lines = ["photo,person"]
    for place in np.flatnonzero(np.isin(found.target, digits)).tolist():
        pixels = np.round(found.images[place] * 255 / 16).astype(np.uint8)
        file = f"{place}.png"
        Image.fromarray(pixels).save(images / file)
        if place % 100 == 0:
            (images / file).write_bytes(b"no image")
        lines.append(f"{file},p{place}")
    (folder / f"{name}.csv").write_text("\n".join([*lines, f"../{name}.csv,p-out"]) + "\n")
    source = DataSetSetup("photos", str(folder / f"{name}.csv"), 20.0, 1e-4, image_folder=str(images))
    policy = PolicySetup(
        approval="automatic",
        columns=["photo"],
        epsilon_per_study_max=EPSILON,
        catalogue=True,
        encoders=[encoder],
    )
    return OwnerSetup(name, source, policy)


def draft_of(encoder: str, units: Mapping[str, int]) -> StudyDraft:
    """Return a study of both owners' images; its columns are the encoder's own."""
    return StudyDraft.from_dict(
        {
            "title": "Do two clinics photograph the same kind of thing?",
            "procedure": "kernel_two_sample",
            "epsilon": EPSILON,
            "delta": 1e-5,
            "owners": [{"name": name, "data_set": "photos", "units": n} for name, n in units.items()],
            "encoders": [
                {
                    "inputs": [
                        {"kind": "image", "name": "photo", "width": SIDE, "height": SIDE, "channels": "grey"}
                    ],
                    "model": {"sha256": encoder, "licence": "CC0-1.0", "length": OUTPUTS, "norm": 2.5},
                    "outputs": [f"f{place}" for place in range(OUTPUTS)],
                }
            ],
        }
    )


@pytest.mark.long
def test_images_are_compared_through_a_public_model(
    tmp_path: Path, start_federation: StartFederation
) -> None:
    """Low digits against high ones are told apart, where an image in a hundred cannot be read."""
    encoder = put(model(), tmp_path / "public")
    owners = [
        owner_of(tmp_path, name, digits, encoder)
        for name, digits in (("north", range(5)), ("south", range(5, 10)))
    ]
    federation = start_federation(owners)
    for name in ("north", "south"):
        put(model(), federation.folder / name / "encoders")
    with federation.analyst_client() as client:
        digest = client.create_study(draft_of(encoder, {"north": 902, "south": 897}))
        verdict = client.wait_for_verdict(digest, timeout_s=300)
        client.verify(digest)
        assert isinstance(verdict.result, TwoSampleResult)
        assert verdict.result.reject
    with federation.agent_client("north") as agent:
        words = str(agent.study(digest)["plain_words"])
    assert (
        f"f0 to f5 (6 columns) are computed here from photo (image), by the public model {encoder} " in words
    )
    logs = "".join(path.read_text() for path in federation.folder.glob("*/*.log"))
    assert "released" in logs
    assert not {"png", "image", "encoder"} & set(re.findall("[a-z]+", logs))
