"""Results on disk: their files, the rule of possible scores, outcomes by item, and the statistics of differences."""
