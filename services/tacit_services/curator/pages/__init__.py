"""The curator's pages: data sets, owners, approvals and ledgers; an owner sees its own alone."""
