# Messages: strict JSON, canonical bytes by the published schema, DSSE envelopes, Ed25519.

# The published wire contract: docs/reference/messages.schema.json of the same version.
wire <- local({
  kept <- NULL
  function() {
    if (is.null(kept)) {
      file <- system.file("wire", "messages.schema.json", package = "tacit", mustWork = TRUE)
      kept <<- jsonlite::read_json(file)
    }
    kept
  }
})

PAYLOAD <- "application/vnd.tacit.%s.v1+json"

payload_type <- function(kind) sprintf(PAYLOAD, kind)

# Stop with a condition of class `tacit_<kind>`, so that callers can tell what went wrong.
fail <- function(kind, message, ...) {
  classes <- c(paste0("tacit_", kind), "tacit_error", "error", "condition")
  stop(structure(list(message = message, call = NULL, ...), class = classes))
}

digest_of <- function(bytes) hex(unclass(openssl::sha256(bytes)))

# Reading ------------------------------------------------------------------------------------------------

# Read JSON with one reading: UTF-8, no key twice, no comment, no NaN, no NUL. Lists, as in jsonlite.
read_strict <- function(bytes) {
  if (length(bytes) == 0 || any(bytes == as.raw(0))) fail("malformed", "the message is empty or holds NUL")
  text <- rawToChar(bytes)
  if (!validUTF8(text)) fail("malformed", "the message is not UTF-8")
  Encoding(text) <- "UTF-8"
  if (grepl("(?<!\\\\)(?:\\\\\\\\)*\\\\u0000", text, perl = TRUE)) {
    fail("malformed", "text may not hold the NUL character")
  }
  bare <- gsub("\"[^\"\\\\]*+(?:\\\\.[^\"\\\\]*+)*+\"", "\"\"", text, perl = TRUE)
  if (!grepl("^[]\\[{},:\"0-9eE+. \t\r\nafln\\-rstu]*$", bare, perl = TRUE)) {
    fail("malformed", "this is not valid JSON")
  }
  value <- tryCatch(
    jsonlite::parse_json(text),
    error = function(error) fail("malformed", "this is not valid JSON")
  )
  refuse_ambiguous(value)
  value
}

refuse_ambiguous <- function(value) {
  if (is.list(value)) {
    if (anyDuplicated(names(value))) fail("malformed", "an object has the same key twice")
    for (part in value) refuse_ambiguous(part)
  } else if (is.numeric(value) && !is.finite(value)) {
    fail("malformed", "numbers must be finite")
  }
}

# Read one message of the wire contract: what its schema does not describe is refused.
read_message <- function(bytes, definition) {
  value <- read_strict(bytes)
  encode_as(value, list(`$ref` = paste0("#/$defs/", definition)), write = FALSE)
  value
}

# Writing ------------------------------------------------------------------------------------------------

# The fewest digits that read back as the same number, and the power of ten of the first.
shortest_digits <- function(number) {
  tried <- sprintf("%.*e", 0:16, number)
  same <- unlist(jsonlite::parse_json(paste0("[", paste(tried, collapse = ","), "]"))) == number
  parts <- strsplit(tried[which(same)[1]], "e", fixed = TRUE)[[1]]
  digits <- sub("0+$", "", gsub("[-.]", "", parts[1]))
  list(digits = if (nzchar(digits)) digits else "0", power = as.integer(parts[2]))
}

# A number as Python and JavaScript's strictest writers agree on it: shortest, 1 written 1.0.
write_number <- function(number) {
  number <- number + 0 # no zero is negative
  if (number == 0) {
    return("0.0")
  }
  found <- shortest_digits(number)
  sign <- if (number < 0) "-" else ""
  count <- nchar(found$digits)
  if (found$power < -4 || found$power >= 16) {
    rest <- if (count > 1) paste0(".", substring(found$digits, 2)) else ""
    exponent <- sprintf("e%s%02d", if (found$power < 0) "-" else "+", abs(found$power))
    return(paste0(sign, substr(found$digits, 1, 1), rest, exponent))
  }
  if (found$power < 0) {
    return(paste0(sign, "0.", strrep("0", -found$power - 1), found$digits))
  }
  whole <- found$power + 1
  digits <- paste0(found$digits, strrep("0", max(0, whole + 1 - count)))
  paste0(sign, substr(digits, 1, whole), ".", substring(digits, whole + 1))
}

write_text <- function(text) {
  text <- enc2utf8(text)
  text <- gsub("\\", "\\\\", text, fixed = TRUE)
  text <- gsub("\"", "\\\"", text, fixed = TRUE)
  for (code in 1:31) {
    named <- c(`8` = "\\b", `9` = "\\t", `10` = "\\n", `12` = "\\f", `13` = "\\r")[as.character(code)]
    escape <- if (is.na(named)) sprintf("\\u%04x", code) else unname(named)
    text <- gsub(intToUtf8(code), escape, text, fixed = TRUE)
  }
  paste0("\"", text, "\"")
}

# A value of no known schema: whole numbers of type integer stay whole.
write_any <- function(value) {
  if (is.null(value)) {
    return("null")
  }
  if (is.list(value) || length(value) != 1) {
    parts <- vapply(as.list(value), write_any, "")
    if (is.null(names(value))) {
      return(paste0("[", paste(parts, collapse = ","), "]"))
    }
    return(write_object(parts))
  }
  if (is.logical(value)) {
    return(if (value) "true" else "false")
  }
  if (is.integer(value)) {
    return(as.character(value))
  }
  if (is.numeric(value)) write_number(value) else write_text(as.character(value))
}

# Members with their values written already, keys in the order of code points.
write_object <- function(parts) {
  if (!length(parts)) {
    return("{}")
  }
  parts <- parts[sort(enc2utf8(names(parts)), method = "radix")]
  paste0("{", paste0(vapply(names(parts), write_text, ""), ":", parts, collapse = ","), "}")
}

# Write a value in the one form that a schema allows, and refuse what it does not.
#
# R's vectors become arrays, `NULL` null, whole numbers integers or numbers as the schema says. Fields that are
# left out are spelled out with their defaults. `write = FALSE` checks alone, without the work of spelling
# numbers.
encode_as <- function(value, schema, path = "$", write = TRUE) {
  if (!is.null(schema[["$ref"]])) {
    name <- sub("#/$defs/", "", schema[["$ref"]], fixed = TRUE)
    return(encode_as(value, wire()[["$defs"]][[name]], path, write))
  }
  refuse <- function(reason) fail("malformed", paste0(reason, " (at ", path, ")"), path = path)
  for (choices in list(schema$anyOf, schema$oneOf)) {
    if (!is.null(choices)) {
      errors <- list()
      for (choice in choices) {
        found <- tryCatch(encode_as(value, choice, path, write), tacit_malformed = identity)
        if (is.character(found)) {
          return(found)
        }
        errors <- c(errors, list(found))
      }
      stop(errors[[which.max(vapply(errors, function(error) nchar(error$path), 0))]])
    }
  }
  type <- schema$type
  if (is.null(type)) {
    return(if (write) write_any(value) else "")
  }
  if (is.factor(value)) value <- as.character(value)
  single <- !is.list(value) && length(value) == 1 && !is.na(value)
  switch(type,
    null = if (!is.null(value)) refuse("nothing is expected here"),
    boolean = if (!single || !is.logical(value)) refuse("TRUE or FALSE is expected here"),
    string = {
      if (!single || !is.character(value)) refuse("one text is expected here")
      length <- nchar(value, "chars")
      if (length < (schema$minLength %||% 0)) refuse("the text is too short")
      if (length > (schema$maxLength %||% Inf)) refuse("the text is too long")
      if (!is.null(schema$pattern) && !grepl(whole(schema$pattern), value, perl = TRUE)) {
        refuse("the text does not have the form asked for")
      }
    },
    integer = ,
    number = {
      if (!single || !is.numeric(value) || !is.finite(value)) refuse("one finite number is expected here")
      if (type == "integer" && value != round(value)) refuse("a whole number is expected here")
      within <- value >= (schema$minimum %||% -Inf) && value <= (schema$maximum %||% Inf) &&
        (is.null(schema$exclusiveMinimum) || value > schema$exclusiveMinimum) &&
        (is.null(schema$exclusiveMaximum) || value < schema$exclusiveMaximum)
      if (!within) refuse("the number is out of range")
    },
    array = {
      if (is.null(value) || (!is.null(names(value)) && length(value))) refuse("a list without names is expected here")
      if (length(value) < (schema$minItems %||% 0)) refuse("there are too few items")
      if (length(value) > (schema$maxItems %||% Inf)) refuse("there are too many items")
    },
    object = if (is.null(value) || (length(value) && is.null(names(value)))) refuse("a list with names is expected here")
  )
  if (!is.null(schema$const) && !identical(value, schema$const)) refuse("the value is not the one allowed here")
  if (!is.null(schema$enum) && !value %in% unlist(schema$enum)) {
    refuse(paste("the value is none of", paste(unlist(schema$enum), collapse = ", ")))
  }
  switch(type,
    null = "null",
    boolean = if (value) "true" else "false",
    string = if (write) write_text(value) else "",
    integer = if (write) sprintf("%.0f", value) else "",
    number = if (write) write_number(value) else "",
    array = {
      items <- schema$items %||% list()
      parts <- vapply(
        seq_along(value),
        function(at) encode_as(value[[at]], items, sprintf("%s[%d]", path, at - 1), write), ""
      )
      paste0("[", paste(parts, collapse = ","), "]")
    },
    object = encode_object(as.list(value), schema, path, write)
  )
}

encode_object <- function(value, schema, path, write) {
  properties <- schema$properties
  within <- function(name) paste0(path, ".", name)
  if (!is.null(properties) && identical(schema$additionalProperties, FALSE)) {
    unknown <- setdiff(names(value), names(properties))
    if (length(unknown)) {
      fail("malformed", sprintf("there is no field %s (at %s)", unknown[1], path), path = path)
    }
  }
  missing <- setdiff(unlist(schema$required), names(value))
  if (length(missing)) {
    fail("malformed", sprintf("the field %s is missing (at %s)", missing[1], path), path = path)
  }
  parts <- character()
  for (name in names(properties)) {
    property <- properties[[name]]
    usual <- if ("default" %in% names(property)) property["default"] else list(default = NULL)
    if (!"default" %in% names(property) && !name %in% unlist(schema$required)) {
      usual <- list(default = list()) # an empty list or mapping, which schemas cannot state
    }
    given <- if (name %in% names(value)) value[[name]] else usual$default
    parts[name] <- encode_as(given, property, within(name), write)
  }
  patterns <- schema$patternProperties
  free <- schema$additionalProperties
  for (name in setdiff(names(value), names(properties))) {
    inner <- free
    if (!is.null(patterns)) {
      inner <- patterns[[1]]
      if (!grepl(whole(names(patterns)[1]), name, perl = TRUE)) {
        fail("malformed", sprintf("this name does not have the form asked for (at %s)", path), path = path)
      }
    }
    parts[name] <- encode_as(value[[name]], if (is.list(inner)) inner else list(), within("*"), write)
  }
  if (length(parts) > (schema$maxProperties %||% Inf)) {
    fail("malformed", paste0("there are too many fields (at ", path, ")"), path = path)
  }
  if (write) write_object(parts) else ""
}

# `$` of a schema's pattern is the very end; R's also stands before a last newline.
whole <- function(pattern) sub("\\$$", "\\\\z", pattern)

`%||%` <- function(given, otherwise) if (is.null(given)) otherwise else given

# Keys and envelopes -------------------------------------------------------------------------------------

hex <- function(bytes) paste(as.character(bytes), collapse = "")

unhex <- function(text) as.raw(strtoi(substring(text, seq(1, nchar(text), 2), seq(2, nchar(text), 2)), 16L))

is_key <- function(text) is.character(text) && length(text) == 1 && grepl("^[0-9a-f]{64}\\z", text, perl = TRUE)

read_private <- function(file) {
  if (!file.exists(file)) fail("input", paste0("there is no key file ", file))
  key <- tryCatch(openssl::read_key(file, password = NULL), error = function(error) NULL)
  if (!inherits(key, "ed25519")) fail("input", paste0(file, " holds no readable Ed25519 private key"))
  key
}

public_hex <- function(key) hex(as.list(as.list(key)$pubkey)$data)

holds <- function(public, signature, message) {
  tryCatch(
    isTRUE(openssl::ed25519_verify(message, signature, openssl::read_ed25519_pubkey(unhex(public)))),
    error = function(error) FALSE
  )
}

pre_authentication <- function(payload, type) {
  c(charToRaw(sprintf("DSSEv1 %d %s %d ", nchar(type, "bytes"), type, length(payload))), payload)
}

write_envelope <- function(payload, type, public, signature) {
  charToRaw(sprintf(
    "{\"payload\":\"%s\",\"payloadType\":\"%s\",\"signatures\":[{\"keyid\":\"%s\",\"sig\":\"%s\"}]}",
    openssl::base64_encode(payload), type, public, openssl::base64_encode(signature)
  ))
}

sign_envelope <- function(payload, kind, key) {
  type <- payload_type(kind)
  write_envelope(payload, type, public_hex(key), openssl::ed25519_sign(pre_authentication(payload, type), key))
}

# The parts of an envelope in its one spelling, unverified; refuses any other.
read_envelope <- function(bytes) {
  if (is.character(bytes)) bytes <- charToRaw(enc2utf8(bytes))
  found <- tryCatch(
    {
      value <- read_message(bytes, "envelope")
      list(
        payload = openssl::base64_decode(value$payload), type = value$payloadType,
        key = value$signatures[[1]]$keyid, signature = openssl::base64_decode(value$signatures[[1]]$sig)
      )
    },
    error = function(error) fail("signature", "this is not an envelope")
  )
  if (!identical(write_envelope(found$payload, found$type, found$key, found$signature), bytes)) {
    fail("signature", "the envelope is not in its one spelling")
  }
  found
}

#' Open a signed message: type first, then key, then signature. Returns the exact bytes of its payload.
#' @noRd
open_envelope <- function(bytes, kinds, key) {
  found <- read_envelope(bytes)
  if (!found$type %in% payload_type(kinds)) fail("signature", "the envelope holds another type of message")
  if (!identical(found$key, key)) fail("signature", "the envelope names another key")
  if (!holds(key, found$signature, pre_authentication(found$payload, found$type))) {
    fail("signature", "the signature does not hold")
  }
  found$payload
}
