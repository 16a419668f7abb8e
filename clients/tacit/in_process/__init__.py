"""Studies in one process: samples as users hold them, and the runner that plays every party."""
