"""Every system on real data: eleven studies of hospitals and registers, asked at once on this machine."""
