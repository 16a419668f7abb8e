# Transcripts: every signature, every digest and the roster. Figures are the Python verifier's.

NOTES <- c(
  "The verdict's figures were not computed again, and no procedure's rules on releases were checked: `tacit verify` does both.",
  "The study was signed with the key %s. That this key is %s's is the study's own word."
)

wrong <- function(step, reason, party = NULL) {
  where <- if (is.null(party)) step else paste(step, "of", party)
  fail("verification", paste0("this transcript does not hold: ", where, ": ", reason), step = step, party = party)
}

# Evaluate what a step of the verification checks; tell of what does not hold as of that step.
checking <- function(step, code, party = NULL) {
  tryCatch(
    code,
    tacit_signature = function(error) wrong(step, conditionMessage(error), party),
    tacit_malformed = function(error) wrong(step, conditionMessage(error), party)
  )
}

open_study <- function(bytes, step) {
  checking(step, {
    key <- read_envelope(bytes)$key
    payload <- open_envelope(bytes, "study", key)
    study <- read_message(payload, "Study")
    if (!identical(study$analyst$key, key)) wrong(step, "the study is signed by another key than its analyst's")
    list(study = study, digest = digest_of(payload), payload = payload)
  })
}

# Refuse a study whose bytes are not its canonical ones; of a procedure that this package does not know, say FALSE.
require_canonical <- function(opened, step) {
  study <- opened$study
  if (is.null(wire()[["x-parameters"]][[study$procedure]])) {
    return(FALSE)
  }
  study$title <- utf8::utf8_normalize(study$title)
  same <- tryCatch(identical(study_bytes(study), opened$payload), tacit_error = function(error) FALSE)
  if (!same) wrong(step, "the study's bytes are not its canonical ones")
  TRUE
}

# Who sends a release: every owner that does not reuse one, or the curator for all of them.
senders_of <- function(study) {
  parties <- if (is.null(study$curator)) study$owners else list(study$curator)
  if (is.null(study$curator)) parties <- Filter(function(owner) is.null(owner$reuses), parties)
  stats::setNames(lapply(parties, function(party) party$key), vapply(parties, function(party) party$name, ""))
}

ANSWERS <- c(release = "ReleaseMessage", `sealed-release` = "SealedRelease", receipt = "Receipt")

# An owner's signed answer: a release, the statement about a sealed one, or a receipt.
open_answer <- function(text, step, study_digest, name, key) {
  checking(step, party = name, {
    payload <- open_envelope(text, names(ANSWERS), key)
    kind <- names(ANSWERS)[payload_type(names(ANSWERS)) == read_envelope(text)$type]
    message <- read_message(payload, ANSWERS[[kind]])
    if (!identical(message$study, study_digest) || !identical(message$party, name)) {
      wrong(step, "it was made for another study or owner", name)
    }
    list(digest = digest_of(payload), kind = kind, received = message$received)
  })
}

open_own <- function(text, step, kind, definition, key, study_digest, name = NULL) {
  checking(step, party = name, {
    payload <- open_envelope(text, kind, key)
    message <- read_message(payload, definition)
    if (!identical(message$study, study_digest) || (!is.null(name) && !identical(message$party, name))) {
      wrong(step, "it was made for another study or owner", name)
    }
    list(digest = digest_of(payload), message = message)
  })
}

verdict_of <- function(study, digest, bytes) {
  found <- open_own(bytes, "verdict", "verdict", "VerdictMessage", study$tester$key, digest)$message
  if (is.null(found$result) == (found$outcome == "completed")) {
    wrong("verdict", "a result belongs to a completed study, and to no other")
  }
  if (is.null(found$declines) != (found$outcome == "completed")) {
    wrong("verdict", "it lists who declined unless the study is completed")
  }
  new_verdict(study, digest, found)
}

same_names <- function(one, other) setequal(as.character(one), as.character(other))

tacit_verify <- function(transcript, tester_key = NULL) {
  if (is.character(transcript)) {
    if (!file.exists(transcript)) fail("input", paste0("there is no file ", transcript))
    transcript <- readBin(transcript, "raw", min(file.size(transcript), TRANSCRIPT_BYTES_MAX + 1))
  }
  if (length(transcript) > TRANSCRIPT_BYTES_MAX) wrong("transcript", "the message is too large")
  whole <- checking("transcript", read_message(transcript, "Transcript"))
  opened <- open_study(whole$study, "study")
  study <- opened$study
  if (!is.null(tester_key) && !identical(study$tester$key, tester_key)) {
    wrong("study", "it names another tester than the one expected")
  }
  is_known <- require_canonical(opened, "study")
  senders <- senders_of(study)
  strangers <- setdiff(names(whole$releases), names(senders))
  if (length(strangers)) wrong("release", "the study's roster does not name this owner", strangers[1])
  answers <- lapply(stats::setNames(nm = names(whole$releases)), function(name) {
    open_answer(whole$releases[[name]], "release", opened$digest, name, senders[[name]])
  })
  digests <- verify_reused(whole, study)
  digests[names(answers)] <- lapply(answers, function(answer) answer$digest)
  verify_received(answers, digests, verify_mask_keys(whole, senders, opened$digest))
  verdict <- verdict_of(study, opened$digest, whole$verdict)
  verify_roster(study, senders, verdict, digests)
  declined <- verify_declines(whole, senders, opened$digest, verdict)
  verify_cancellation(whole, study, opened$digest, verdict)
  structure(
    list(
      study = study, digest = opened$digest, verdict = verdict, releases = digests, declined = declined,
      notes = c(
        NOTES[1], sprintf(NOTES[2], study$analyst$key, study$analyst$name),
        if (!is_known) "This package does not know the procedure: whether the bytes are canonical was not looked at.",
        if (length(verdict$revoked)) "That a key was revoked is the tester's word.",
        if (is.null(tester_key)) "The tester's key is the one that the study names: compare it with what the tester's operator told you."
      )
    ),
    class = "tacit_verified"
  )
}

# The digest of all keys of a study with masks; NULL of a study without.
verify_mask_keys <- function(whole, senders, study_digest) {
  given <- whole$mask_keys
  if (!length(given)) {
    return(NULL)
  }
  strangers <- setdiff(names(given), names(senders))
  if (length(strangers)) wrong("mask key", "the study asks this party for none", strangers[1])
  digests <- lapply(stats::setNames(nm = names(given)), function(name) {
    open_own(given[[name]], "mask key", "mask-key", "MaskKeyMessage", senders[[name]], study_digest, name)$digest
  })
  if (!same_names(names(given), names(senders))) {
    return("") # of keys that are not all there, no release can be made
  }
  digest_of(charToRaw(write_any(list(format = "tacit/mask-roster/1", keys = digests, study = study_digest))))
}

# What an owner's answer says that it was computed with: the keys for masks, or what was sent in round one.
verify_received <- function(answers, digests, mask_keys) {
  for (name in names(answers)) {
    received <- answers[[name]]$received
    sent <- digests[setdiff(names(digests), name)]
    # Of one sender the digest of what it signed; of several, the digest of all of them by name.
    sent <- mask_keys %||% if (length(sent) == 1) sent[[1]] else digest_of(charToRaw(write_any(sent)))
    if ((!is.null(received) || !is.null(mask_keys)) && !identical(received, sent)) {
      wrong("release", "it answers to another release, or other keys, than are there", name)
    }
  }
}

verify_reused <- function(whole, study) {
  reusing <- if (is.null(study$curator)) Filter(function(owner) !is.null(owner$reuses), study$owners) else list()
  named <- vapply(reusing, function(owner) owner$name, "")
  if (!same_names(names(whole$reused), named)) wrong("reuse", "it holds other earlier releases than the study names")
  earlier <- unique(vapply(reusing, function(owner) owner$reuses, ""))
  if (!same_names(names(whole$sources), earlier)) wrong("reuse", "it holds other earlier studies than the study names")
  sources <- lapply(stats::setNames(nm = names(whole$sources)), function(digest) {
    source <- open_study(whole$sources[[digest]], "reuse")
    if (!identical(source$digest, digest)) wrong("reuse", "an earlier study is not the one that its digest names")
    require_canonical(source, "reuse")
    source$study
  })
  digests <- list()
  for (owner in reusing) {
    source <- sources[[owner$reuses]]
    maker <- Filter(function(found) identical(found$name, owner$name), source$owners)
    same <- length(maker) == 1 && identical(maker[[1]]$key, owner$key) &&
      identical(maker[[1]]$data_set, owner$data_set) && is.null(maker[[1]]$reuses) &&
      is.null(source$curator) && identical(source$tester$key, study$tester$key) &&
      identical(source$unit_column, study$unit_column) && identical(source$alignment, study$alignment) &&
      identical(source$unit_rows %||% "average", study$unit_rows %||% "average")
    if (!same) wrong("reuse", "the earlier study had another key, data set, unit, alignment or tester", owner$name)
    digests[[owner$name]] <- open_answer(whole$reused[[owner$name]], "reuse", owner$reuses, owner$name, owner$key)$digest
  }
  digests
}

verify_roster <- function(study, senders, verdict, digests) {
  listed <- verdict$releases
  if (!same_names(names(listed), names(digests)) || !identical(unlist(listed[names(digests)]), unlist(digests))) {
    wrong("roster", "the verdict lists other releases than the transcript holds")
  }
  absent <- setdiff(names(senders), names(digests))
  if (!identical(as.character(unlist(verdict$missing)), absent)) wrong("roster", "the verdict is wrong about who is missing")
  if (verdict$outcome == "completed" && length(absent)) wrong("roster", "a completed study needs every owner's release")
  if (verdict$outcome == "incomplete" && !length(absent)) wrong("roster", "an incomplete study must miss a release")
  if (length(verdict$revoked) && verdict$outcome != "incomplete") {
    wrong("roster", "a revoked key ends a study without a result, and in no other way")
  }
  if (length(setdiff(unlist(verdict$revoked), c(study$analyst$name, absent)))) {
    wrong("roster", "a revoked key is of no party that the study needed")
  }
}

verify_declines <- function(whole, senders, study_digest, verdict) {
  listed <- verdict$declines
  if (!same_names(names(listed), names(whole$declines))) {
    wrong("decline", "the verdict lists other declines than the transcript holds")
  }
  if (length(setdiff(names(listed), unlist(verdict$missing)))) {
    wrong("decline", "the verdict says that an owner declined who is not missing")
  }
  for (name in names(whole$declines)) {
    found <- open_own(whole$declines[[name]], "decline", "decline", "DeclineMessage", senders[[name]], study_digest, name)
    if (!identical(found$digest, listed[[name]])) wrong("decline", "the verdict lists another one", name)
  }
  as.character(names(whole$declines))
}

verify_cancellation <- function(whole, study, study_digest, verdict) {
  if (verdict$outcome != "cancelled") {
    if (!is.null(whole$cancellation)) wrong("cancellation", "the study was not cancelled, and there is one")
    return(invisible())
  }
  if (is.null(whole$cancellation)) wrong("cancellation", "no cancellation signed by the study's analyst is there")
  open_own(whole$cancellation, "cancellation", "cancellation", "CancellationMessage", study$analyst$key, study_digest)
}

print.tacit_verified <- function(x, ...) {
  cat("Every signature and digest holds, and the verdict lists exactly these releases.\n")
  cat(strwrap(x$notes, prefix = "  "), sep = "\n")
  print(x$verdict)
  invisible(x)
}
