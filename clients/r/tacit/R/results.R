# Verdicts: tidy tibbles of what the tester signed, and pictures of them.

# Tables of a verdict that `tidy` looks for, the most telling first. They are the same in every procedure.
TABLES <- c("effects", "pairs", "columns", "curves", "summaries", "locations", "steps", "effects_by_owner")

new_verdict <- function(study, digest, message) {
  structure(c(list(study = study, digest = digest), message[setdiff(names(message), "study")]), class = "tacit_verdict")
}

print.tacit_verdict <- function(x, ...) {
  print_warnings(x$result$warnings)
  cat(x$study$title, "\n", x$study$procedure, ": ", x$outcome, "\n", sep = "")
  if (!is.null(x$result)) print(glance(x))
  if (length(x$missing)) cat("No release from", paste(unlist(x$missing), collapse = ", "), "\n")
  invisible(x)
}

print_warnings <- function(warnings) {
  for (warning in warnings) cat(strwrap(paste0("Warning: ", warning), exdent = 2), sep = "\n")
}

is_value <- function(value) !is.list(value) && length(value) == 1

is_records <- function(value) {
  is.list(value) && is.null(names(value)) && length(value) > 0 &&
    all(vapply(value, function(item) is.list(item) && !is.null(names(item)), NA))
}

# One row: values that stand for themselves as columns, the rest left out.
values_row <- function(fields) {
  fields <- lapply(fields, function(value) if (is.null(value)) NA else value)
  tibble::as_tibble(fields[vapply(fields, is_value, NA)])
}

# A row for each record; lists of texts joined (`north, south`), lists of numbers and mappings as list columns.
records_table <- function(records) {
  names <- unique(unlist(lapply(records, names)))
  column <- function(name) {
    found <- lapply(records, function(record) record[[name]] %||% NA)
    texts <- vapply(found, function(value) is.list(value) && is.null(names(value)) && all(vapply(value, is.character, NA)), NA)
    found[texts] <- lapply(found[texts], function(value) paste(unlist(value), collapse = ", "))
    if (all(vapply(found, is_value, NA))) {
      return(unlist(found))
    }
    lapply(found, function(value) if (is.list(value) && is.null(names(value))) unlist(value) else value)
  }
  tibble::as_tibble(lapply(stats::setNames(nm = names), column))
}

require_result <- function(verdict) {
  if (is.null(verdict$result)) fail("input", paste0("the study ended ", verdict$outcome, ": there is no result"))
  verdict$result
}

tacit_tables <- function(x) {
  result <- require_result(x)
  found <- lapply(result[vapply(result, is_records, NA)], records_table)
  if (is.list(result$counts) && length(result$counts)) found$counts <- counts_table(x$study, result)
  found
}

# Noisy counts by owner and cell. Cells run over the categories of the study's columns, the last one fastest;
# where their numbers are those of the levels with "other" and "missing", the categories are named.
counts_table <- function(study, result) {
  shape <- unlist(result$shape)
  named <- stats::setNames(study$domain$columns, vapply(study$domain$columns, function(column) column$name, ""))
  labels <- lapply(seq_along(shape), function(at) {
    levels <- unlist(named[[result$columns[[at]]]]$levels)
    all <- c(levels, "(other)", "(missing)")
    if (length(levels) && shape[at] == length(all)) all else as.character(seq_len(shape[at]))
  })
  names(labels) <- unlist(result$columns)
  cells <- rev(expand.grid(rev(labels), stringsAsFactors = FALSE))
  tables <- lapply(names(result$counts), function(owner) {
    counts <- unlist(result$counts[[owner]])
    if (length(counts) != nrow(cells)) cells <- data.frame(cell = seq_along(counts))
    half <- result$half_width %||% NA_real_
    data.frame(owner = owner, cells, count = counts, lower = counts - half, upper = counts + half, check.names = FALSE)
  })
  tibble::as_tibble(do.call(rbind, tables))
}

tidy.tacit_verdict <- function(x, table = NULL, ...) {
  tables <- tacit_tables(x)
  if (is.null(table)) {
    table <- intersect(c(TABLES, "counts", names(tables)), names(tables))
    if (!length(table)) {
      return(broom_names(values_row(c(list(term = x$study$procedure), require_result(x)))))
    }
    table <- table[1]
  }
  if (!table %in% names(tables)) {
    fail("input", paste0("there is no table ", table, "; there are: ", paste(names(tables), collapse = ", ")))
  }
  broom_names(tables[[table]])
}

# What a row is about, in the order in which it is read.
WORDS <- c(
  "procedure", "outcome", "term", "column", "columns", "first", "second", "kind", "groups", "group", "owner",
  "level", "unit"
)

# The names and the order that broom's methods have for the same things.
broom_names <- function(table) {
  usual <- c(pvalue = "p.value", lower = "conf.low", upper = "conf.high", standard_error = "std.error")
  found <- intersect(names(usual), names(table))
  names(table)[match(found, names(table))] <- usual[found]
  numbers <- intersect(c("estimate", "std.error", "statistic", "p.value", "conf.low", "conf.high"), names(table))
  words <- intersect(WORDS, names(table))
  table[c(words, numbers, setdiff(names(table), c(words, numbers)))]
}

glance.tacit_verdict <- function(x, ...) {
  result <- require_result(x)
  units <- if (is.list(result$units)) sum(unlist(result$units)) else NA
  row <- values_row(result[setdiff(names(result), "units")])
  broom_names(tibble::add_column(row, procedure = x$study$procedure, outcome = x$outcome, nobs = units, .before = 1))
}

tidy.tacit_verified <- function(x, ...) tidy(x$verdict, ...)
glance.tacit_verified <- function(x, ...) glance(x$verdict, ...)

as_tibble.tacit_verdict <- function(x, ...) tidy.tacit_verdict(x, ...)

# Draw the table that `tidy` returns: estimates with their intervals, or else counts, curves or p-values.
autoplot.tacit_verdict <- function(object, table = NULL, ...) {
  shown <- as.data.frame(tidy.tacit_verdict(object, table))
  titles <- ggplot2::labs(
    title = object$study$title,
    caption = sprintf("Level %g; intervals include the noise that protects the data", object$study$level)
  )
  if ("survival" %in% names(shown)) {
    return(draw_curves(shown) + titles)
  }
  drawn <- intersect(
    c("estimate", "count", "distance_correlation", "squared_mmd_unbiased", "difference", "p.value"), names(shown)
  )
  drawn <- drawn[vapply(shown[drawn], function(column) any(is.finite(as.numeric(column))), NA)]
  if (!length(drawn)) fail("input", "there is nothing to draw in this table: see tidy() and tacit_tables()")
  shown$estimate <- as.numeric(shown[[drawn[1]]])
  described <- intersect(c(WORDS, unlist(object$result$columns)), names(shown))
  described <- described[vapply(shown[described], function(column) !is.list(column) && length(unique(column)) > 1, NA)]
  faceted <- "kind" %in% described
  if (faceted) described <- setdiff(described, c("kind", "unit"))
  words <- function(row) paste(stats::na.omit(unlist(lapply(row, as.character))), collapse = ", ")
  shown$term <- if (length(described)) {
    vapply(seq_len(nrow(shown)), function(at) words(shown[at, described, drop = FALSE]), "")
  } else if (nrow(shown) == 1) {
    object$study$procedure
  } else {
    as.character(seq_len(nrow(shown)))
  }
  shown$term <- factor(shown$term, levels = rev(unique(shown$term)))
  picture <- ggplot2::ggplot(shown, ggplot2::aes(y = .data$term, x = .data$estimate))
  if (drawn[1] == "p.value") {
    picture <- picture + ggplot2::geom_vline(xintercept = object$study$level, linetype = "dashed")
  } else if (all(c("conf.low", "conf.high") %in% names(shown))) {
    ends <- ggplot2::aes(xmin = .data$conf.low, xmax = .data$conf.high)
    picture <- picture + ggplot2::geom_linerange(ends, na.rm = TRUE)
  }
  picture <- picture + ggplot2::geom_point(na.rm = TRUE)
  if (faceted) {
    picture <- picture + ggplot2::facet_wrap(ggplot2::vars(.data$kind), scales = "free")
  }
  picture + titles + ggplot2::labs(x = gsub("[_.]", " ", drawn[1]), y = NULL)
}

draw_curves <- function(curves) {
  parts <- lapply(seq_len(nrow(curves)), function(at) {
    group <- if (is.na(curves$group[at])) "all" else curves$group[at]
    data.frame(
      group = group, time = curves$times[[at]], survival = curves$survival[[at]],
      low = curves$conf.low[[at]], high = curves$conf.high[[at]]
    )
  })
  band <- ggplot2::aes(ymin = .data$low, ymax = .data$high, fill = .data$group)
  ggplot2::ggplot(do.call(rbind, parts), ggplot2::aes(x = .data$time, y = .data$survival, colour = .data$group)) +
    ggplot2::geom_ribbon(band, alpha = 0.2, colour = NA) +
    ggplot2::geom_step()
}

autoplot.tacit_verified <- function(object, ...) autoplot.tacit_verdict(object$verdict, ...)
