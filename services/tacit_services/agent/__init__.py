"""The agent: the service that a data owner runs next to its data; its interface is for the owner alone."""
