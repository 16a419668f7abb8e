"""What can go wrong with a ledger.

Tree::

    LedgerError
    ├── UnknownAccountError    no account of that data set: open it first
    ├── BudgetExceededError    the debit would pass the account's shares: ask for less, or raise the cap
    ├── DivisionRefusedError   shares promised before and new ones would pass the cap: write what it says
    ├── AlreadyDebitedError    this study has been debited already: use the stored release
    ├── LedgerConflictError    someone else wrote the account meanwhile: run the transaction again
    └── LedgerDamagedError     the entries do not add up: stop, and restore or investigate
"""


class LedgerError(Exception):
    """A ledger could not do what was asked; nothing was written."""


class UnknownAccountError(LedgerError):
    """There is no account of that data set."""


class BudgetExceededError(LedgerError):
    """The debit would pass the shares of the account's cap."""


class DivisionRefusedError(LedgerError):
    """Shares that were promised before and those asked for would together pass the account's cap."""


class AlreadyDebitedError(LedgerError):
    """The study has been debited to this account before."""


class LedgerConflictError(LedgerError):
    """Another transaction wrote to the account since it was read."""


class LedgerDamagedError(LedgerError):
    """The stored entries contradict each other, or the account."""
