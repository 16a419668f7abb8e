"""Two samples compared by means of features: releases, statistics and verdicts."""
