"""The ledger: every budget spent on every data set, in accounts of chained entries."""
