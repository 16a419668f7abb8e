"""The R package: a real R against published vectors, stored transcripts, forged ones, and real services."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tacit.client.transcripts import verify_transcript_of
from tacit.setup.configuration import DataSetSetup, PolicySetup
from tacit.setup.federation import LocalFederation, OwnerSetup
from tacit_protocol.messages.encoding import encode_json
from tacit_protocol.signing import RELEASE_TYPE, VERDICT_TYPE, PrivateKey, payload_of, sign_envelope
from tacit_protocol.verification import VerificationError, verify_transcript

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "clients" / "r" / "tacit"
STORED = ROOT / "tests" / "compatibility" / "fixtures"

Rscript = Callable[..., str]


VERIFY_ALL = """
told <- lapply(list.files(commandArgs(TRUE)[1], full.names = TRUE), function(file) {
  found <- tryCatch(tacit_verify(file), error = function(error) error)
  if (inherits(found, "tacit_verification")) return(list(name = basename(file), refused = found$step))
  if (inherits(found, "error")) stop(found)
  rows <- 0L
  if (!is.null(found$verdict$result)) {
    rows <- nrow(tidy(found))
    stopifnot(nrow(glance(found)) == 1, all(vapply(tacit_tables(found$verdict), nrow, 0L) > 0))
    if (any(c("estimate", "count", "p.value") %in% names(tidy(found)))) {
      tryCatch(ggplot2::ggplot_build(autoplot(found)), tacit_input = identity)
    }
  }
  list(
    name = basename(file), digest = found$digest,
    reject = found$verdict$result$reject, rows = rows
  )
})
cat(jsonlite::toJSON(told, auto_unbox = TRUE, null = "null"))
"""


def stored(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((STORED / f"{name}.json").read_text("utf-8"))["transcript"]
    return found


def verified_by_r(rscript: Rscript, folder: Path, transcripts: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return what R found in each transcript, by name."""
    folder.mkdir()
    for name, transcript in transcripts.items():
        (folder / name).write_bytes(encode_json(transcript))
    told = json.loads(rscript(VERIFY_ALL, str(folder)))
    assert {one["name"] for one in told} == set(transcripts)
    return {one["name"]: one for one in told}


def forged() -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield what was done to a transcript, the step at which that is found, and the transcript."""
    true, other = stored("federation-two-sample"), stored("noisy_counts-laplace")
    stranger = PrivateKey.generate()
    verdict = json.loads(payload_of(true["verdict"].encode()))

    def signed(**changes: Any) -> str:
        return sign_envelope(encode_json(verdict | changes), VERDICT_TYPE, stranger).decode()

    release = json.loads(true["releases"]["north"])
    changed = release | {"payload": release["payload"][:-8] + "AAAAAAA="}
    own = payload_of(true["releases"]["north"].encode())
    both = true["releases"]
    resigned = both | {"north": sign_envelope(own, RELEASE_TYPE, stranger).decode()}
    yield (
        "a release is changed",
        "release",
        true | {"releases": both | {"north": encode_json(changed).decode()}},
    )
    yield "a release is a stranger's", "release", true | {"releases": resigned}
    yield (
        "releases are exchanged",
        "release",
        true | {"releases": {"north": both["south"], "south": both["north"]}},
    )
    yield (
        "a release is taken out",
        "roster",
        true | {"releases": {k: v for k, v in both.items() if k == "north"}},
    )
    yield "a release is added", "release", true | {"releases": both | {"zurich": both["north"]}}
    yield "the verdict is a stranger's", "verdict", true | {"verdict": signed(outcome="incomplete")}
    yield "the verdict is another study's", "verdict", true | {"verdict": other["verdict"]}
    yield "the study is another", "release", true | {"study": other["study"]}
    yield "a cancellation is added", "cancellation", true | {"cancellation": true["study"]}
    yield "there is a field more", "transcript", true | {"note": "x"}
    declined = stored("federation-declined")
    yield "the declines are taken out", "decline", declined | {"declines": {}}
    reused = stored("federation-reuse")
    yield "an earlier study is taken out", "reuse", reused | {"sources": {}}
    yield (
        "an earlier study is another",
        "reuse",
        reused | {"sources": dict.fromkeys(reused["sources"], true["study"])},
    )


def test_stored_transcripts_verify_in_r_and_forged_ones_do_not(rscript: Rscript, tmp_path: Path) -> None:
    names = ["federation-two-sample", "federation-declined", "federation-reuse", "survival-groups"]
    lies = {words: (step, transcript) for words, step, transcript in forged()}
    asked = {name: stored(name) for name in names} | {words: lie for words, (_, lie) in lies.items()}
    found = verified_by_r(rscript, tmp_path / "transcripts", asked)
    for name in names:
        own = verify_transcript(encode_json(asked[name]))
        assert found[name]["digest"] == own.study_digest
    for words, (step, transcript) in lies.items():
        assert found[words].get("refused") == step, (words, found[words])
        with pytest.raises(VerificationError):
            verify_transcript(encode_json(transcript))


@pytest.mark.long
def test_every_stored_transcript_verifies_in_r_and_its_study_is_written_again(
    rscript: Rscript, tmp_path: Path
) -> None:
    documents = {file.name: json.loads(file.read_text("utf-8")) for file in sorted(STORED.glob("*.json"))}
    asked = {name: found["transcript"] for name, found in documents.items() if found.get("transcript")}
    assert len(asked) > 80
    found = verified_by_r(rscript, tmp_path / "transcripts", asked)
    for name, transcript in asked.items():
        own = verify_transcript(encode_json(transcript))
        assert found[name].get("digest") == own.study_digest, found[name]
        if own.verdict.result is not None:
            assert found[name]["reject"] == own.verdict.result["reject"]
            assert found[name]["rows"] > 0


ANALYSIS = """
asked <- commandArgs(TRUE)
session <- tacit_sign_in(asked[1])
published <- tacit_catalogue(session)
stopifnot(identical(sort(unique(published$owner)), c("north", "south")), "age" %in% published$column)
parties <- tacit_parties(session)
stopifnot(all(c("north", "south", "analyst") %in% parties$name))
study <- tacit_study(
  session, "Are the patients of north and south alike? \\u00e9",
  procedure = "kernel_two_sample", parameters = list(noise = "gaussian"), epsilon = 4, delta = 1e-5,
  columns = list(tacit_numeric("age", 0, 120), tacit_categorical("sex", c("F", "M"))),
  owners = lapply(c("north", "south"), tacit_owner, data_set = "patients", units = 1000)
)
print(study)
plan <- tacit_plan(session, study, effect = 0.5)
print(plan)
stopifnot(nrow(tidy(plan)) >= 5, 4 %in% tidy(plan)$epsilon, plan$measure == "power")
stopifnot(plan$units == c(1000, 1000))
stopifnot(with(tidy(plan), all(conf.low <= estimate & estimate <= conf.high)), is.null(plan$fewer))
without <- tacit_study(session, "x", epsilon = 1, delta = 1e-5, columns = tacit_numeric("age", 0, 120),
  owners = list(tacit_owner("north", "patients"), tacit_owner("south", "patients", units = 1000)))
refused <- tryCatch(tacit_plan(session, without), tacit_input = conditionMessage)
stopifnot(grepl("how many units north holds", refused))
digest <- tacit_create(session, study)
stopifnot(identical(tacit_create(session, study), digest), identical(digest, study$digest))
verdict <- tacit_watch(session, digest, timeout_s = 250)
print(verdict)
stopifnot(verdict$outcome == "completed", glance(verdict)$nobs == 2000, nrow(tidy(verdict)) > 0)
stopifnot(all(tidy(verdict)$conf.low <= tidy(verdict)$conf.high))
stopifnot(digest %in% tacit_studies(session)$digest, tacit_status(session, digest)$state == "completed")
tacit_transcript(session, digest, asked[2])
verified <- tacit_verify(asked[2], tester_key = session$tester_key)
stopifnot(identical(verified$digest, digest))
ggplot2::ggplot_build(autoplot(verified))
refused <- tryCatch(tacit_cancel(session, digest), tacit_problem = identity)
stopifnot(refused$type == "study-closed")
pinned <- session
pinned$tester_key <- strrep("0", 64)
stopifnot(inherits(tryCatch(tacit_identity(pinned), error = identity), "tacit_verification"))
refused <- tryCatch(tacit_study(session, "x", epsilon = 1, columns = tacit_numeric("age", 0, 1),
  owners = tacit_owner("nobody", "patients")), error = identity)
stopifnot(inherits(refused, "tacit_input"))
cat("DIGEST", digest, "REJECT", verdict$result$reject, "\\n")
"""


@pytest.mark.long
def test_an_analyst_with_nothing_but_r_asks_two_owners_and_checks_the_answer(
    rscript: Rscript,
    start_federation: Callable[[Sequence[OwnerSetup]], LocalFederation],
    patients: Callable[..., Iterator[tuple[str, str]]],
    eventually: Callable[[Callable[[], Any]], Any],
    tmp_path: Path,
) -> None:
    policy = PolicySetup(
        approval="automatic",
        epsilon_per_study_max=4.0,
        delta_per_study_max=1e-5,
        columns=("age", "sex"),
        catalogue=True,
    )
    owners = [
        OwnerSetup(name, DataSetSetup("patients", source, 8.0, 1e-4), policy)
        for name, source in patients(tmp_path, {"north": 40, "south": 70}, 1000, 1)
    ]
    federation = start_federation(owners)
    with federation.analyst_client() as analyst:
        eventually(lambda: len(analyst.catalogues()) == 2)
    transcript = tmp_path / "transcript.json"
    said = rscript(ANALYSIS, str(federation.analyst.configuration), str(transcript))
    words = said.split()
    digest, reject = words[words.index("DIGEST") + 1], words[words.index("REJECT") + 1]
    found = verify_transcript_of(transcript.read_bytes(), digest, federation.tester_key)
    assert found.verdict.outcome == "completed"
    assert (found.verdict.result or {})["reject"] is (reject == "TRUE")
    # A tester that changes one release after the fact is caught in R, too.
    lie = json.loads(transcript.read_bytes())
    lie["releases"]["north"] = lie["releases"]["south"]
    refused = verified_by_r(rscript, tmp_path / "forged", {"forged": lie})
    assert refused["forged"]["refused"] == "release"


@pytest.mark.long
def test_r_cmd_check_finds_nothing_wrong(rscript: Rscript, tmp_path: Path) -> None:
    """It runs the unit tests, over the published vectors. Without the PDF manual, which needs LaTeX."""
    environment = os.environ | {"_R_CHECK_CRAN_INCOMING_": "false", "_R_CHECK_FORCE_SUGGESTS_": "false"}
    built = subprocess.run(
        ["R", "CMD", "build", str(PACKAGE)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    archive = next(tmp_path.glob("tacit_*.tar.gz"))
    checked = subprocess.run(
        ["R", "CMD", "check", "--no-manual", archive.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=environment,
    )
    assert checked.returncode == 0, checked.stdout[-4000:]
    assert "Status: OK" in checked.stdout, checked.stdout[-4000:]
