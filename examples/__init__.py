"""Uses of Tacit beside the installed packages: every system on real data, and other platforms' carriers."""
