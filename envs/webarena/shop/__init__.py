"""A small online shop of our own, for browsers: enough of a Magento shop for WebArena's evaluators."""
