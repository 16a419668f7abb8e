test_that("warnings are printed before what they limit", {
  warned <- list(reject = FALSE, pvalue = 0.2, warnings = list("Hopeless: there are few units", "delta is large"))
  verdict <- new_verdict(list(title = "Alike?", procedure = "p"), "ab", list(outcome = "completed", result = warned))
  printed <- utils::capture.output(print(verdict))
  expect_identical(printed[1:3], c("Warning: Hopeless: there are few units", "Warning: delta is large", "Alike?"))
  status <- structure(
    list(
      digest = "ab", title = "Alike?", state = "collecting", deadline = as_time(0), warnings = "few units",
      owners = data.frame(name = "north", sent = FALSE, declined = FALSE)
    ),
    class = "tacit_status"
  )
  expect_identical(utils::capture.output(print(status))[1:2], c("Warning: few units", "Alike?"))
})
