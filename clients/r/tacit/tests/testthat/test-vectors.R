# The published test vectors (docs/reference/test-vectors.json): what is signed, taken and refused.

vectors <- jsonlite::read_json(test_path("test-vectors.json"))
kind_of <- function(type) sub("^application/vnd\\.tacit\\.(.*)\\.v1\\+json$", "\\1", type)
definition_of <- function(type) sub("#/$defs/", "", wire()[["x-payload-types"]][[type]], fixed = TRUE)
key_of <- function(name) openssl::read_ed25519_key(unhex(vectors$keys[[name]]$seed))

test_that("keys made from the public seeds are those of the vectors", {
  for (name in names(vectors$keys)) expect_identical(public_hex(key_of(name)), vectors$keys[[name]]$public)
})

test_that("a message is read, and signed again to the same bytes", {
  for (taken in vectors$taken) {
    payload <- charToRaw(taken$payload)
    kind <- kind_of(taken$payload_type)
    expect_identical(digest_of(payload), taken$sha256)
    expect_identical(rawToChar(sign_envelope(payload, kind, key_of(taken$signer))), taken$envelope)
    opened <- open_envelope(taken$envelope, kind, vectors$keys[[taken$signer]]$public)
    expect_identical(opened, payload)
    expect_type(read_message(opened, definition_of(taken$payload_type)), "list")
  }
})

test_that("a study is written in its canonical bytes", {
  payload <- charToRaw(vectors$taken[[1]]$payload)
  study <- read_message(payload, "Study")
  expect_identical(study_bytes(study), payload)
  study$parameters <- list()
  study$owners[[1]]$units <- NULL
  expect_identical(study_bytes(study), payload) # defaults are spelled out
})

test_that("what receivers refuse is refused, for the envelope or for the message", {
  for (wrong in vectors$refused) {
    bytes <- openssl::base64_decode(wrong$envelope_base64)
    public <- vectors$keys[[wrong$signer]]$public
    open <- function() open_envelope(bytes, kind_of(wrong$payload_type), public)
    if (wrong$refused_as == "envelope") {
      expect_error(open(), class = "tacit_signature", info = wrong$why)
    } else {
      payload <- open()
      expect_error(
        read_message(payload, definition_of(wrong$payload_type)),
        class = "tacit_malformed", info = wrong$why
      )
    }
  }
})
