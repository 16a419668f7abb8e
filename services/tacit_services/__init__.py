"""The services: an owner's agent, the tester, the ledger, and what they share."""
