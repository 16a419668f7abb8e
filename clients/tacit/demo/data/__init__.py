"""Four hospitals' heart patients, for the demo; see ATTRIBUTION.txt."""
