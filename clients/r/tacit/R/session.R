# A party at its tester: who signs in, requests, and what is asked and read.

ATTEMPTS_MAX <- 4
RETRIED <- c(429, 502, 503, 504)
PAGES_MAX <- 1000
TRANSCRIPT_BYTES_MAX <- 2^28
POLL_WAIT_S <- 2
NO_FOLDER <- "/dev/null"
PROXY_BASIC <- 1 # CURLAUTH_BASIC

# Read a flat TOML file of texts and truth values, as `tacit party init` writes it.
read_toml <- function(file) {
  if (!file.exists(file)) fail("input", paste0("there is no file ", file, ": make one with `tacit party init`"))
  lines <- trimws(readLines(file, encoding = "UTF-8", warn = FALSE))
  tables <- grep("^\\[", lines)
  if (length(tables)) lines <- lines[seq_len(tables[1] - 1)]
  fields <- list()
  for (line in lines[nzchar(lines) & !startsWith(lines, "#")]) {
    name <- sub("\\s*=.*$", "", line)
    said <- sub("^[^=]*=\\s*", "", line)
    fields[[name]] <- if (grepl("^\"", said)) {
      tryCatch(
        jsonlite::parse_json(sub("^(\"(?:[^\"\\\\]|\\\\.)*\").*$", "\\1", said, perl = TRUE)),
        error = function(error) fail("input", paste0(file, ": cannot read ", name))
      )
    } else if (grepl("^'", said)) {
      sub("^'([^']*)'.*$", "\\1", said)
    } else {
      identical(sub("\\s*#.*$", "", said), "true")
    }
  }
  fields
}

#' Sign in as a party, with its key file
#'
#' Nothing is sent: every request carries a token of its own, signed with the key. See `man/tacit_sign_in.Rd`.
#' @noRd
tacit_sign_in <- function(party = "party.toml", url = NULL, key_file = NULL, tester_key = NULL,
                          audience = NULL, ca_file = NULL, proxy = NULL, insecure_plain_http = FALSE) {
  fields <- list()
  place <- function(name) NULL
  if (is.null(key_file)) {
    fields <- read_toml(party)
    place <- function(name) {
      said <- fields[[name]]
      if (is.null(said)) NULL else if (grepl("^(/|[A-Za-z]:)", said)) said else file.path(dirname(party), said)
    }
    key_file <- place("key_file")
    if (is.null(key_file)) fail("input", paste0(party, " must say key_file (text)"))
  }
  url <- sub("/+$", "", url %||% fields$tester_url %||% fail("input", "say the tester's url"))
  tester_key <- tester_key %||% fields$tester_key
  if (!is.null(tester_key) && !is_key(tester_key)) {
    fail("input", "the tester's key is 64 hexadecimal digits in small letters")
  }
  require_private(url, insecure_plain_http || isTRUE(fields$insecure_plain_http))
  private <- read_private(key_file)
  shown <- list(place("tester_certificate_file"), place("tester_certificate_key_file"))
  if (sum(lengths(shown)) == 1) {
    fail("input", "tester_certificate_file and tester_certificate_key_file need each other")
  }
  options <- list(
    followlocation = FALSE, accept_encoding = NULL, maxfilesize_large = TRANSCRIPT_BYTES_MAX,
    connecttimeout = 5, sslcert = shown[[1]], sslkey = shown[[2]]
  )
  authorities <- ca_file %||% place("tester_ca_file")
  if (!is.null(authorities)) {
    if (!file.exists(authorities)) fail("input", paste0("tester_ca_file: there is no file ", authorities))
    # In place of the public ones: libcurl would look into the system's folder as well.
    options <- c(
      options, cainfo = authorities, capath = NO_FOLDER, proxy_cainfo = authorities, proxy_capath = NO_FOLDER
    )
  }
  credentials <- place("tester_proxy_credentials_file")
  options <- c(options, proxy_options(url, proxy %||% fields[["tester_proxy"]], credentials))
  structure(
    list(
      url = url, audience = audience %||% fields$tester_audience %||% url, tester_key = tester_key,
      key = private, public = public_hex(private), name = fields$name,
      options = options[!vapply(options, is.null, NA)]
    ),
    class = "tacit_session"
  )
}

print.tacit_session <- function(x, ...) {
  cat("Tester:", x$url, if (is.null(x$tester_key)) "(its key is not pinned)", "\n")
  cat("Signs as:", x$name %||% "", x$public, "\n")
  invisible(x)
}

# The way there as `tester_proxy` says it. Nothing to this machine in the clear goes to a proxy.
proxy_options <- function(url, proxy, credentials) {
  if (is.null(proxy) && !is.null(credentials)) fail("input", "tester_proxy_credentials_file needs tester_proxy")
  if (is.null(proxy) || (startsWith(url, "http:") && is_loopback(parts_of(url)[3]))) {
    return(list(noproxy = "*")) # what the environment says of proxies is not asked
  }
  options <- list()
  if (!identical(proxy, "environment")) {
    if (grepl("@", proxy, fixed = TRUE)) {
      fail("input", "tester_proxy: put user and password in a file, and name it tester_proxy_credentials_file")
    }
    if (!grepl("^https?://(\\[[0-9a-fA-F:.]+\\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?/?$", proxy)) {
      fail("input", "tester_proxy: write it like http://proxy.hospital.example:3128")
    }
    # Without noproxy, NO_PROXY of the environment would count; libcurl's own port is 1080.
    port <- if (grepl(":[0-9]+/?$", proxy)) "" else if (startsWith(proxy, "https")) ":443" else ":80"
    options <- list(noproxy = "", proxy = paste0(sub("/$", "", proxy), port))
  }
  if (is.null(credentials)) {
    return(options)
  }
  if (!file.exists(credentials)) fail("input", paste("tester_proxy_credentials_file: cannot read", credentials))
  line <- readLines(credentials, warn = FALSE, encoding = "UTF-8")
  if (length(line) != 1 || !grepl("^[^:]+:", line)) {
    fail("input", paste0("tester_proxy_credentials_file: ", credentials, " must hold one line, user:password"))
  }
  # libcurl reads both as a URL spells them, and would answer whatever way of signing in the proxy proposes.
  spelt <- function(text) paste0(rep("%", nchar(text, "bytes")), charToRaw(text), collapse = "")
  both <- paste0(spelt(sub(":.*$", "", line)), ":", spelt(sub("^[^:]*:", "", line)))
  c(options, proxyuserpwd = both, proxyauth = PROXY_BASIC)
}

parts_of <- function(url) {
  regmatches(url, regexec("^(https?)://(\\[[0-9a-f:]+\\]|[^/:@?#]+)(:[0-9]+)?(/.*)?$", url))[[1]]
}

is_loopback <- function(host) grepl("^(localhost|127\\.[0-9.]+|\\[::1\\])$", host)

# Plain http would let others read what is sent: it goes to this machine alone.
require_private <- function(url, insecure) {
  parts <- parts_of(url)
  if (!length(parts)) fail("input", "this is no URL of a tester: write it like https://tester.example")
  if (parts[2] == "http" && !is_loopback(parts[3]) && !insecure) {
    fail("input", paste0(url, ": everybody on the way could read and change what is sent; use https"))
  }
}

base64url <- function(bytes) gsub("=", "", chartr("+/", "-_", openssl::base64_encode(bytes)), fixed = TRUE)

# A token that lives a minute: who signs with this key asks this service now.
issue_token <- function(session, now = as.integer(Sys.time())) {
  claims <- list(
    aud = session$audience, exp = now + 60L, iat = now, iss = session$public,
    jti = hex(openssl::rand_bytes(16))
  )
  said <- c(charToRaw("{\"alg\":\"EdDSA\",\"typ\":\"JWT\"}"), raw())
  signed <- paste(base64url(said), base64url(charToRaw(enc2utf8(write_any(claims)))), sep = ".")
  paste(signed, base64url(openssl::ed25519_sign(charToRaw(signed), session$key)), sep = ".")
}

# Send a request, again where that is harmless, and return the answer's status, type and exact bytes.
send <- function(session, method, path, query = list(), body = NULL, signed = TRUE, timeout_s = 90) {
  for (attempt in seq_len(ATTEMPTS_MAX)) {
    request <- httr2::request(session$url)
    request <- httr2::req_url_path_append(request, path)
    request <- do.call(httr2::req_url_query, c(list(request), query))
    request <- httr2::req_method(request, method)
    request <- do.call(httr2::req_options, c(list(request), session$options))
    request <- httr2::req_headers(request, Accept = "application/json")
    if (signed) request <- httr2::req_headers(request, Authorization = paste("Bearer", issue_token(session)))
    if (!is.null(body)) request <- httr2::req_body_raw(request, body, "application/json")
    request <- httr2::req_timeout(request, timeout_s)
    request <- httr2::req_user_agent(request, paste0("tacit-r/", utils::packageVersion("tacit")))
    request <- httr2::req_error(request, is_error = function(answer) FALSE)
    answer <- tryCatch(httr2::req_perform(request), error = identity)
    lost <- inherits(answer, "error")
    if (!lost && !httr2::resp_status(answer) %in% RETRIED) break
    if (attempt == ATTEMPTS_MAX || !method %in% c("GET", "PUT", "DELETE")) break
    Sys.sleep(min(10, 0.2 * 2^(attempt - 1)))
  }
  if (lost) {
    fail("transport", paste0("the tester at ", session$url, " did not answer: ", conditionMessage(answer)))
  }
  content <- if (length(answer$body)) httr2::resp_body_raw(answer) else raw()
  list(status = httr2::resp_status(answer), content = content)
}

# Return the answer's bytes, or stop with the problem that the tester tells.
ask <- function(session, method, path, ...) check(send(session, method, path, ...))$content

check <- function(answer) {
  if (answer$status %in% 200:299) {
    return(answer)
  }
  told <- problem_of(answer)
  fail("problem", told$words, status = answer$status, type = told$type)
}

problem_of <- function(answer) {
  found <- tryCatch(read_strict(answer$content), error = function(error) list())
  type <- if (is.character(found$type)) sub("^urn:tacit:problem:", "", found$type) else "unknown"
  said <- Filter(is.character, list(found$title, found$detail, found$advice))
  list(type = type, words = paste0(paste(said, collapse = ". "), " (", answer$status, ", ", type, ")"))
}

ask_json <- function(session, path, query = list(), signed = TRUE) {
  found <- tryCatch(
    read_strict(ask(session, "GET", path, query = query, signed = signed)),
    tacit_malformed = function(error) fail("transport", "the tester's answer is not JSON")
  )
  if (is.null(names(found))) fail("transport", "the tester's answer is no object")
  found
}

ask_pages <- function(session, path, query = list()) {
  items <- list()
  for (page in seq_len(PAGES_MAX)) {
    found <- ask_json(session, path, query)
    if (!is.list(found$items)) fail("transport", "the tester's answer is not a list")
    items <- c(items, found$items)
    if (is.null(found[["next"]])) {
      return(items)
    }
    query$cursor <- as.character(found[["next"]])
  }
  fail("transport", "the tester's list does not end")
}

# One row for each item: fields that are single values, the others left out.
rows_of <- function(items, fields) {
  column <- function(name) {
    found <- lapply(items, function(item) item[[name]] %||% NA)
    if (all(lengths(found) == 1 & !vapply(found, is.list, NA))) unlist(found) else found
  }
  columns <- lapply(stats::setNames(nm = fields), column)
  if (!length(items)) columns <- lapply(columns, function(none) character())
  tibble::as_tibble(columns)
}

segment <- function(text) utils::URLencode(text, reserved = TRUE)

study_path <- function(digest, ...) paste(c("/v1/studies", segment(require_digest(digest)), ...), collapse = "/")

require_digest <- function(digest) {
  if (inherits(digest, "tacit_study")) digest <- digest$digest
  if (!is_key(digest)) fail("input", "a study's digest is 64 hexadecimal digits: `tacit_create()` returns it")
  digest
}

tacit_identity <- function(session) {
  found <- ask_json(session, "/v1/identity", signed = FALSE)
  if (!is_key(found$key)) fail("transport", "the tester does not say its key")
  if (!is.null(session$tester_key) && !identical(found$key, session$tester_key)) {
    fail("verification", "the tester has another key than the one that you pinned")
  }
  found
}

tacit_enrol <- function(session, invitation, name, role = "analyst") {
  body <- write_any(list(invitation = invitation, key = session$public, name = name, role = role))
  answer <- check(send(session, "POST", "/v1/enrolments", body = charToRaw(enc2utf8(body))))
  invisible(read_strict(answer$content)$name)
}

tacit_parties <- function(session) {
  rows_of(ask_pages(session, "/v1/parties"), c("name", "role", "key", "revoked_at"))
}

# The keys of present parties of one role, by name.
enrolled <- function(parties, role) {
  chosen <- parties$role == role & is.na(parties$revoked_at)
  stats::setNames(as.list(parties$key[chosen]), parties$name[chosen])
}

tacit_catalogue <- function(session) {
  owners <- enrolled(tacit_parties(session), "owner")
  named <- vapply(ask_pages(session, "/v1/catalogue"), function(item) as.character(item$owner), "")
  rows <- list()
  for (owner in intersect(named, names(owners))) {
    bytes <- ask(session, "GET", paste0("/v1/catalogue/", segment(owner)))
    entry <- tryCatch(
      read_message(open_envelope(bytes, "catalogue", owners[[owner]]), "CatalogueMessage"),
      tacit_error = function(error) fail("verification", paste0("the catalogue of ", owner, " is not valid"))
    )
    expected <- session$tester_key %||% entry$tester
    if (!identical(entry$owner, owner) || !identical(entry$tester, expected)) {
      fail("verification", paste0("the tester answered with another catalogue than ", owner, "'s"))
    }
    for (data_set in entry$data_sets) {
      for (column in data_set$columns) {
        rows <- c(rows, list(list(
          owner = owner, data_set = data_set$name, column = column$name, kind = column$kind,
          lower = column$lower, upper = column$upper,
          levels = if (is.null(column$levels)) NA else list(unlist(column$levels)),
          measure = data_set$measures[[column$name]], unit_column = data_set$unit_column,
          units = data_set$units, about = data_set$about
        )))
      }
      for (column in data_set$other_columns) {
        rows <- c(rows, list(list(
          owner = owner, data_set = data_set$name, column = column, unit_column = data_set$unit_column,
          units = data_set$units, about = data_set$about
        )))
      }
    }
  }
  fields <- c(
    "owner", "data_set", "column", "kind", "lower", "upper", "levels", "measure", "unit_column", "units", "about"
  )
  found <- rows_of(rows, fields)
  found$levels <- lapply(rows, function(row) if (is.list(row$levels)) row$levels[[1]] else NULL)
  found
}

tacit_studies <- function(session, state = NULL) {
  fields <- c("digest", "title", "procedure", "state", "created_at", "deadline")
  found <- rows_of(ask_pages(session, "/v1/studies", list(state = state)), fields)
  for (time in c("created_at", "deadline")) found[[time]] <- as_time(found[[time]])
  found
}

as_time <- function(seconds) as.POSIXct(as.numeric(seconds), origin = "1970-01-01", tz = "UTC")

tacit_status <- function(session, study) {
  found <- ask_json(session, study_path(study))
  structure(
    list(
      digest = found$digest, title = found$title, state = found$state, deadline = as_time(found$deadline),
      owners = rows_of(found$owners, c("name", "sent", "declined", "rule")),
      progress = found$progress$fraction, warnings = unlist(found$warnings)
    ),
    class = "tacit_status"
  )
}

print.tacit_status <- function(x, ...) {
  print_warnings(x$warnings)
  cat(x$title, "\n", x$digest, "\n", x$state, ", until ", format(x$deadline, usetz = TRUE), "\n", sep = "")
  for (at in seq_len(nrow(x$owners))) {
    did <- if (x$owners$sent[at]) "sent" else if (x$owners$declined[at]) "declined" else "has not answered"
    cat("  ", x$owners$name[at], ": ", did, "\n", sep = "")
  }
  invisible(x)
}

tacit_create <- function(session, study) {
  if (!inherits(study, "tacit_study")) fail("input", "make the study with tacit_study() first")
  if (!identical(study$fields$analyst$key, session$public)) {
    fail("input", "the study names another analyst than this session's key")
  }
  envelope <- sign_envelope(study$payload, "study", session$key)
  ask(session, "PUT", study_path(study), body = envelope)
  study$digest
}

# How often the study would find an effect, as its tester simulates it: before anybody is asked.
tacit_plan <- function(session, study, effect = NULL) {
  if (!inherits(study, "tacit_study")) fail("input", "make the study with tacit_study() first")
  query <- if (is.null(effect)) list() else list(effect = write_number(effect))
  found <- read_strict(ask(session, "POST", "/v1/plans", query = query, body = study$payload))
  if (is.null(found$plan)) fail("input", found$refused %||% "the tester does not say why there is no plan")
  curve <- found$plan$curve
  points <- tibble::tibble(
    epsilon = vapply(curve$points, function(point) point$at, 0),
    estimate = vapply(curve$points, function(point) point$value, 0),
    conf.low = vapply(curve$points, function(point) point$interval[[1]] %||% NA_real_, 0),
    conf.high = vapply(curve$points, function(point) point$interval[[2]] %||% NA_real_, 0),
    refused = vapply(curve$points, function(point) point$refused, NA)
  )
  structure(
    list(
      points = points, measure = curve$measure, effect = curve$effect, runs = curve$runs, units = unlist(curve$n),
      words = found$plan$words, complete = found$plan$complete, fewer = found$plan$fewer
    ),
    class = "tacit_plan"
  )
}

print.tacit_plan <- function(x, ...) {
  cat(x$words, "\n", sep = "")
  if (!x$complete) cat("Time allowed ", x$runs, " simulated studies a point.\n", sep = "")
  if (!is.null(x$fewer)) cat("Owners were simulated with ", x$fewer, " units at most.\n", sep = "")
  print(x$points)
  invisible(x)
}

tidy.tacit_plan <- function(x, ...) x$points

tacit_cancel <- function(session, study) {
  digest <- require_digest(study)
  message <- charToRaw(write_any(list(format = "tacit/cancellation/1", study = digest)))
  ask(session, "PUT", study_path(digest, "cancellation"), body = sign_envelope(message, "cancellation", session$key))
  invisible(digest)
}

# The study of a digest, as its analyst signed it, checked.
read_study_of <- function(session, digest) {
  bytes <- ask(session, "GET", study_path(digest, "envelope"))
  opened <- open_study(bytes, "study")
  if (!identical(opened$digest, digest)) fail("verification", "the tester answered with another study")
  pinned <- session$tester_key %||% opened$study$tester$key
  if (!identical(opened$study$tester$key, pinned)) {
    fail("verification", "the study names another tester's key than the one that you pinned")
  }
  opened$study
}

tacit_watch <- function(session, study, timeout_s = 600, progress = interactive()) {
  digest <- require_digest(study)
  asked <- read_study_of(session, digest)
  ends_at <- Sys.time() + timeout_s
  repeat {
    answer <- send(session, "GET", study_path(digest, "verdict"), query = list(wait_s = POLL_WAIT_S))
    if (answer$status == 200) {
      return(verdict_of(asked, digest, answer$content))
    }
    if (problem_of(answer)$type != "verdict-pending") check(answer)
    status <- tacit_status(session, digest)
    if (progress) message(status$state, ": ", sum(status$owners$sent), " of ", nrow(status$owners), " sent")
    if (Sys.time() >= ends_at) {
      fail("timeout", sprintf("no verdict within %g s; the study is %s. Ask again later.", timeout_s, status$state))
    }
    Sys.sleep(0.2)
  }
}

tacit_transcript <- function(session, study, file = NULL) {
  bytes <- ask(session, "GET", study_path(study, "transcript"), timeout_s = 600)
  if (is.null(file)) {
    return(bytes)
  }
  writeBin(bytes, file)
  invisible(file)
}

# Studies that are carried to an owner, and the owner's answer -------------------------------------------

tacit_envelope <- function(session, study, file = NULL) {
  bytes <- ask(session, "GET", study_path(study, "envelope"))
  if (is.null(file)) {
    return(bytes)
  }
  writeBin(bytes, file)
  invisible(file)
}

tacit_deliver <- function(session, answer) {
  bytes <- if (is.raw(answer)) answer else readBin(answer, raw(), file.size(answer))
  told <- tryCatch(
    {
      found <- read_envelope(bytes)
      kind <- c(release = "releases", decline = "declines")[match(found$type, payload_type(c("release", "decline")))]
      payload <- open_envelope(bytes, c("release", "decline"), found$key) # whose key that is, the tester says
      message <- read_message(payload, c(releases = "ReleaseMessage", declines = "DeclineMessage")[[kind]])
      c(message$study, kind, message$party)
    },
    tacit_error = function(error) fail("input", "this is no owner's answer: bring what `tacit agent answer` wrote")
  )
  ask(session, "PUT", study_path(told[1], told[2], segment(told[3])), body = bytes)
  invisible(told[1])
}

# What a DataSHIELD parser lets through as a text: letters, digits, "_" and "-".
tacit_text <- function(bytes) base64url(bytes)

AGENT_NOT_YET <- 3L
AGENT_MARGIN_S <- 300

# Of a DataSHIELD server (inst/DATASHIELD): bring a study to the owner's agent beside it, and return its answer. Which
# agent, its operator says in the server's environment; nothing that it logs is returned.
tacitAnswerDS <- function(study, timeout_s = 600) {
  if (!is.character(study) || length(study) != 1 || is.na(study) || !grepl("^[A-Za-z0-9_-]+$", study)) {
    stop("study: one text, as tacit_text() writes it", call. = FALSE)
  }
  if (!is.numeric(timeout_s) || length(timeout_s) != 1 || !is.finite(timeout_s) || timeout_s < 0) {
    stop("timeout_s: one number of seconds", call. = FALSE)
  }
  configuration <- Sys.getenv("TACIT_AGENT_CONFIG")
  if (!nzchar(configuration)) stop("the server's operator has named no agent (TACIT_AGENT_CONFIG)", call. = FALSE)
  folder <- tempfile("tacit")
  dir.create(folder, mode = "0700")
  on.exit(unlink(folder, recursive = TRUE))
  asked <- file.path(folder, "study.dsse")
  answered <- file.path(folder, "answer.dsse")
  padded <- paste0(chartr("-_", "+/", study), strrep("=", -nchar(study) %% 4))
  writeBin(openssl::base64_decode(padded), asked)
  log <- file.path(folder, "log")
  told <- c(
    "agent", "answer", asked, "--output", answered, "--config", configuration,
    "--timeout-s", format(as.numeric(timeout_s), scientific = FALSE)
  )
  # R's own path of libraries would have another Python load those that it was not built for.
  status <- suppressWarnings(system2(
    Sys.getenv("TACIT_COMMAND", "tacit"), shQuote(told), stdout = log, stderr = log,
    env = "LD_LIBRARY_PATH=", timeout = timeout_s + AGENT_MARGIN_S
  ))
  kept <- Sys.getenv("TACIT_AGENT_LOG")
  if (nzchar(kept)) file.append(kept, log)
  if (identical(status, 0L) && file.exists(answered)) {
    return(list(state = "answered", answer = readBin(answered, raw(), file.size(answered))))
  }
  list(state = if (identical(status, AGENT_NOT_YET)) "not-yet" else "failed", answer = NULL)
}
