"""The ledger: every budget spent on every data set, kept by whoever holds the raw data.

One account per data set, one entry per debit or change of cap, each entry holding the hash of the one
before it. Amounts are integers. All functions work inside a transaction that the caller opened, so that a
debit, its noise and its release stand or fall together.
"""
