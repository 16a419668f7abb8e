"""The history of the tester's tables, run by tacit_services.shared.database.upgrade."""
