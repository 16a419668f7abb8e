test_that("numbers are written in their shortest form", {
  written <- c(
    `1` = "1.0", `0.1` = "0.1", `1e-05` = "1e-05", `1e+16` = "1e+16", `123456789012345680` = "1.2345678901234568e+17",
    `-0.0001` = "-0.0001", `0` = "0.0", `1e22` = "1e+22", `0.30000000000000004` = "0.30000000000000004",
    `5e-324` = "5e-324", `100` = "100.0", `1.5` = "1.5"
  )
  for (text in names(written)) {
    number <- jsonlite::parse_json(text)
    expect_identical(write_number(number), unname(written[text]))
  }
  expect_identical(write_number(-0), "0.0")
})

test_that("texts are escaped as little as JSON allows", {
  expect_identical(write_text("a\"\\\n\u00e9\u0001/"), "\"a\\\"\\\\\\n\u00e9\\u0001/\"")
})

test_that("keys are sorted by code point, whatever the locale", {
  value <- stats::setNames(list(1L, 2L, 3L, NULL), c("b", "B", "\u00e9", "a"))
  expect_identical(write_any(value), "{\"B\":2,\"a\":null,\"b\":1,\"\u00e9\":3}")
})

test_that("budgets are rounded down, as decimals", {
  expect_identical(in_units(1, 6, "epsilon"), 1e6)
  expect_identical(in_units(0.1, 6, "epsilon"), 1e5)
  expect_identical(in_units(0.29, 6, "epsilon"), 290000)
  expect_identical(in_units(1e-5, 12, "delta"), 1e7)
  expect_identical(in_units(1.9999999, 6, "epsilon"), 1999999)
  expect_error(in_units(-1, 6, "epsilon"), class = "tacit_input")
})

test_that("JSON with two readings is refused", {
  for (text in c("{\"a\":1,\"a\":2}", "[NaN]", "[1e999]", "{} // x", "[1,]", "{\"a\":\"\\u0000\"}", "", "[01]")) {
    expect_error(read_strict(charToRaw(text)), class = "tacit_malformed", info = text)
  }
  expect_identical(read_strict(charToRaw("{\"a\":\"// NaN\"}")), list(a = "// NaN"))
})

test_that("a value that its schema does not describe is refused, with its place", {
  column <- list(`$ref` = "#/$defs/NumericColumn")
  expect_identical(
    encode_as(tacit_numeric("age", 0, 120), column),
    "{\"kind\":\"numeric\",\"lower\":0.0,\"missing\":null,\"name\":\"age\",\"upper\":120.0}"
  )
  expect_error(encode_as(list(name = "age", lower = 0), column), "upper is missing", class = "tacit_malformed")
  expect_error(encode_as(list(name = "age", lower = "0", upper = 1), column), "\\$\\.lower", class = "tacit_malformed")
  expect_error(encode_as(list(name = "a", lower = 0, upper = 1, x = 1), column), "no field x", class = "tacit_malformed")
})

test_that("nothing is sent in the clear but to this machine", {
  expect_error(require_private("http://tester.example", FALSE), "https", class = "tacit_input")
  expect_silent(require_private("http://127.0.0.1:8400", FALSE))
  expect_silent(require_private("https://tester.example/path", FALSE))
  expect_error(require_private("https://user@tester.example", FALSE), class = "tacit_input")
})
