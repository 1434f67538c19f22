"""One file = one table or figure; each is a module that can be run."""
