"""What procedures on noisy counts share: releases of counts, tables, tests within strata."""
