# A study, frozen: its exact bytes, and the digest by which everybody knows it.

tacit_numeric <- function(name, lower, upper, missing = NULL) {
  list(kind = "numeric", lower = lower, missing = missing, name = name, upper = upper)
}

tacit_categorical <- function(name, levels) list(kind = "categorical", levels = levels, name = name)

tacit_owner <- function(name, data_set, units = NULL, key = NULL, columns = NULL, reuses = NULL, sealing = NULL) {
  list(
    columns = columns, data_set = data_set, key = key, name = name, reuses = reuses, sealing = sealing,
    units = units
  )
}

tacit_procedures <- function() {
  described <- wire()[["x-parameters"]]
  rows <- lapply(names(described), function(name) {
    schema <- wire()[["$defs"]][[sub("#/$defs/", "", described[[name]], fixed = TRUE)]]
    lapply(names(schema$properties), function(parameter) {
      property <- schema$properties[[parameter]]
      usual <- if (!is.null(property$default)) write_any(property$default) else NA_character_
      required <- parameter %in% unlist(schema$required)
      list(procedure = name, parameter = parameter, default = usual, required = required)
    })
  })
  rows_of(unlist(rows, recursive = FALSE), c("procedure", "parameter", "default", "required"))
}

# An amount in millionths or the like: the decimal that was written, rounded down, as everywhere in Tacit.
in_units <- function(amount, power, what) {
  if (!is.numeric(amount) || length(amount) != 1 || !is.finite(amount) || amount < 0) {
    fail("input", paste(what, "must be one number, not below 0"))
  }
  if (amount == 0) {
    return(0)
  }
  found <- shortest_digits(amount)
  places <- found$power + 1 + power
  if (places <= 0) {
    return(0)
  }
  as.numeric(substr(paste0(found$digits, strrep("0", places)), 1, places))
}

tacit_study <- function(session, title, columns, owners, epsilon, delta = 0, procedure = "kernel_two_sample",
                        parameters = list(), level = 0.05, unit_column = NULL, unit_rows = "average",
                        curator = NULL, alignment = NULL, purpose = NULL, contact = NULL,
                        approval_number = NULL, data_use = NULL, open_for_hours = 168, respond_after_s = 3,
                        seed = NULL) {
  tester <- tacit_identity(session)
  parties <- tacit_parties(session)
  analysts <- enrolled(parties, "analyst")
  name <- names(analysts)[vapply(analysts, identical, NA, session$public)]
  if (!length(name)) fail("input", "your key is not enrolled as an analyst: tacit_enrol() with an invitation")
  if (!is.null(names(owners))) owners <- list(owners)
  if (!is.null(names(columns))) columns <- list(columns)
  known <- enrolled(parties, "owner")
  owners <- lapply(owners, function(owner) {
    pinned <- owner$key
    listed <- known[[owner$name]]
    if (is.null(curator) && is.null(listed)) fail("input", paste0("no owner ", owner$name, " is enrolled"))
    if (is.null(curator) && !is.null(pinned) && !identical(pinned, listed)) {
      fail("verification", paste0("the tester gives another key for ", owner$name, " than you do"))
    }
    owner["key"] <- list(pinned %||% listed)
    owner
  })
  if (!is.null(curator)) {
    key <- enrolled(parties, "curator")[[curator]]
    if (is.null(key)) fail("input", paste0("no curator ", curator, " is enrolled"))
    curator <- list(key = key, name = curator)
  }
  now <- floor(as.numeric(Sys.time()))
  fields <- list(
    alignment = alignment, analyst = list(key = session$public, name = name[1]),
    approval_number = approval_number,
    budget = list(delta_pico = in_units(delta, 12, "delta"), epsilon_micro = in_units(epsilon, 6, "epsilon")),
    contact = contact, created_at = now, curator = curator, data_use = data_use,
    deadline = now + max(1, round(open_for_hours * 3600)), domain = list(columns = columns),
    format = "tacit/study/1", level = level, owners = owners, parameters = parameters,
    procedure = procedure, procedure_origin = NULL, purpose = purpose, respond_after_s = respond_after_s,
    seed = seed %||% hex(openssl::rand_bytes(16)), tester = list(key = tester$key, name = tester$name),
    title = utf8::utf8_normalize(enc2utf8(title)), unit_column = unit_column, unit_rows = unit_rows
  )
  payload <- study_bytes(fields)
  structure(list(fields = fields, payload = payload, digest = digest_of(payload)), class = "tacit_study")
}

# The canonical bytes of a study's fields: with every parameter of its procedure spelled out.
study_bytes <- function(fields) {
  schema <- wire()[["$defs"]]$Study
  described <- wire()[["x-parameters"]][[fields$procedure]]
  if (is.null(described)) {
    fail("input", paste0(
      "there is no procedure ", fields$procedure, "; known: ",
      paste(names(wire()[["x-parameters"]]), collapse = ", ")
    ))
  }
  schema$properties$parameters <- list(`$ref` = described)
  charToRaw(enc2utf8(encode_as(fields, schema)))
}

print.tacit_study <- function(x, ...) {
  fields <- x$fields
  cat(fields$title, "\n", fields$procedure, ", epsilon ", fields$budget$epsilon_micro / 1e6, sep = "")
  if (fields$budget$delta_pico > 0) cat(", delta", fields$budget$delta_pico / 1e12)
  cat(", level", fields$level, "\n")
  for (owner in fields$owners) cat("  asks ", owner$name, "/", owner$data_set, "\n", sep = "")
  for (column in fields$domain$columns) {
    range <- if (is.null(column$levels)) c(column$lower, column$upper) else column$levels
    cat("  ", column$name, ": ", paste(range, collapse = if (is.null(column$levels)) " to " else ", "), "\n", sep = "")
  }
  cat("Digest:", x$digest, "\n")
  invisible(x)
}
